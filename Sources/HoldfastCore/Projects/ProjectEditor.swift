public import Bucketing
public import JSON
public import Storage

/// Edits the stored datafile of a project and activates the result.
///
/// An edit is applied to the newest stored datafile. If somebody else stored another one in the meantime, the edit is
/// applied again to theirs, so no edit is lost. Edits run off the event loops: a big datafile takes long to compile.
public struct ProjectEditor: Sendable {
    /// Changes the datafile; may be called several times.
    ///
    /// - Returns: the result that the completion gets.
    public typealias Change<Outcome> = @Sendable (inout DatafileEditor, Project?) throws(CoreError) -> Outcome

    /// What the audit log says of an edit.
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
    /// How often an edit is applied again before it fails with 409.
    private static let retries = 10

    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// Edits a datafile, or creates it if the project has none. A change that makes no difference stores nothing.
    ///
    /// - Parameter completion: called on any thread with the project as this edit left it, whatever others made of it
    ///   since.
    public func edit<Outcome: Sendable>(
        _ sdkKey: String, _ note: Note, by author: Author, _ change: @escaping Change<Outcome>,
        completion: @escaping @Sendable (Result<(Project, Outcome), CoreError>) -> Void
    ) {
        edit(
            Edit(sdkKey: sdkKey, note: note, author: author, change: change, completion: completion),
            retries: Self.retries)
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

    private func apply<Outcome>(
        _ edit: Edit<Outcome>, to project: Project?, _ session: any StoreSession, retries: Int
    ) throws(CoreError) {
        var editor =
            project.map { DatafileEditor($0.datafile) } ?? DatafileEditor(projectID: edit.sdkKey, sdkKey: edit.sdkKey)
        let former = editor.value
        let outcome = try edit.change(&editor, project)
        ServedExperiments.serve(in: &editor)
        if let project, editor.value == former { return edit.completion(.success((project, outcome))) }
        editor.incrementRevision()
        FlagVersions.stamp(&editor, former: project.map { DatafileEditor($0.datafile) })
        let edited = try Project.compile(editor.value)
        let note = AuditNote(
            edit.note.action, of: edit.note.subject, before: edit.note.describe(project?.datafile),
            after: edit.note.describe(edited))
        session.putDatafile(
            editor.value.encoded(), sdkKey: edit.sdkKey, revision: edited.revision, replacing: project?.version ?? 0,
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
