public import Bucketing
public import JSON
public import Storage

/// Edits the stored datafile of a project and activates the result.
///
/// An edit is applied to the newest stored datafile. Edits of one process take turns. If another process stores an edit
/// meanwhile, this one is applied again to the result of that one, so no edit is lost. Edits run off the event loops,
/// because a large datafile takes long to compile.
public struct ProjectEditor: Sendable {
    /// Changes the datafile; may be called several times.
    ///
    /// - Returns: the result that the completion gets.
    public typealias Change<Outcome> = @Sendable (inout DatafileEditor, Project?) throws(CoreError) -> Outcome

    /// The entry of an edit in the audit log.
    public struct Note: Sendable {
        var action: AuditAction
        /// The key of what is edited.
        var subject: String
        /// What is edited as it is in a datafile, before and after.
        var describe: @Sendable (Datafile?) -> JSONValue

        public init(_ action: AuditAction, of subject: String, describe: @escaping @Sendable (Datafile?) -> JSONValue) {
            self.action = action
            self.subject = subject
            self.describe = describe
        }
    }

    private let catalog: ProjectCatalog
    /// The number of times that an edit is applied again, because of other processes, before it fails with 409.
    private static let retries = 50

    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// Edits a datafile, or creates it if the project has none. A change that makes no difference stores nothing.
    ///
    /// - Parameter completion: called on any thread with the project as this edit left it, without later edits of
    ///   others.
    public func edit<Outcome: Sendable>(
        _ sdkKey: String, _ note: Note, by author: Author, _ change: @escaping Change<Outcome>,
        completion: @escaping @Sendable (Result<(Project, Outcome), CoreError>) -> Void
    ) {
        let turn = Edit(sdkKey: sdkKey, note: note, author: author, change: change) { [catalog] result in
            completion(result)
            catalog.endEdit()
        }
        catalog.beginEdit { edit(turn, retries: Self.retries) }
    }

    private struct Edit<Outcome: Sendable>: Sendable {
        let sdkKey: String
        let note: Note
        let author: Author
        let change: Change<Outcome>
        let completion: @Sendable (Result<(Project, Outcome), CoreError>) -> Void
    }

    private func edit<Outcome>(_ edit: Edit<Outcome>, retries: Int) {
        // Another process may have stored a newer datafile than this one knows.
        catalog.refresh { result in
            if case .failure(let error) = result { return edit.completion(.failure(CoreError(error))) }
            catalog.inBackground { session in
                do throws(CoreError) {
                    try apply(edit, to: catalog.snapshot().projects[edit.sdkKey], session, retries: retries)
                } catch {
                    edit.completion(.failure(error))
                }
            }
        }
    }

    /// A datafile as a change would leave it.
    public struct Draft<Outcome: Sendable>: Sendable {
        /// The project before the change; `nil` if it has no datafile yet.
        public var project: Project?
        public var datafile: Datafile
        public var outcome: Outcome
    }

    /// Applies a change as ``edit(_:_:by:_:completion:)`` does, but stores nothing.
    ///
    /// - Parameter completion: called on any thread.
    public func preview<Outcome: Sendable>(
        _ sdkKey: String, _ change: @escaping Change<Outcome>,
        completion: @escaping @Sendable (Result<Draft<Outcome>, CoreError>) -> Void
    ) {
        catalog.refresh { result in
            if case .failure(let error) = result { return completion(.failure(CoreError(error))) }
            catalog.inBackground { _ in
                do throws(CoreError) {
                    let project = catalog.snapshot().projects[sdkKey]
                    let (outcome, datafile, _) = try Self.draft(sdkKey, change, of: project)
                    completion(.success(Draft(project: project, datafile: datafile, outcome: outcome)))
                } catch {
                    completion(.failure(error))
                }
            }
        }
    }

    /// - Returns: the compiled datafile, and its content; `nil` if the change makes no difference.
    private static func draft<Outcome>(
        _ sdkKey: String, _ change: Change<Outcome>, of project: Project?
    ) throws(CoreError) -> (outcome: Outcome, datafile: Datafile, content: JSONValue?) {
        var editor = project.map { DatafileEditor($0.datafile) } ?? DatafileEditor(projectID: sdkKey, sdkKey: sdkKey)
        let former = editor.value
        let outcome = try change(&editor, project)
        ServedExperiments.serve(in: &editor)
        if let project, editor.value == former { return (outcome, project.datafile, nil) }
        editor.incrementRevision()
        FlagVersions.stamp(&editor, former: project.map { DatafileEditor($0.datafile) })
        return (outcome, try Project.compile(editor.value), editor.value)
    }

    private func apply<Outcome>(
        _ edit: Edit<Outcome>, to project: Project?, _ session: any StoreSession, retries: Int
    ) throws(CoreError) {
        let (outcome, edited, content) = try Self.draft(edit.sdkKey, edit.change, of: project)
        guard let content else {
            // Only a change of a stored datafile can make no difference.
            if let project { edit.completion(.success((project, outcome))) }
            return
        }
        let note = AuditNote(
            edit.note.action, of: edit.note.subject, before: edit.note.describe(project?.datafile),
            after: edit.note.describe(edited))
        session.putDatafile(
            content.encoded(), sdkKey: edit.sdkKey, revision: edited.revision, replacing: project?.version ?? 0,
            note: note, by: edit.author
        ) { result in
            switch result {
            case .failure(let error): edit.completion(.failure(CoreError(error)))
            case .success(nil) where retries == 0:
                edit.completion(
                    .failure(CoreError(.conflict, "others are changing the datafile; nothing was stored; try again")))
            case .success(nil): self.edit(edit, retries: retries - 1)
            case .success(let stored?):
                // The response must not precede the change in this process.
                catalog.refresh { result in
                    edit.completion(result.map { (Project(stored, edited), outcome) }.mapError { CoreError($0) })
                }
            }
        }
    }
}
