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

    /// Whether a change may move users who take part.
    public enum MovePolicy: String, Sendable, CaseIterable {
        case refuse
        case allow
    }

    private let catalog: ProjectCatalog
    /// The number of times that an edit is applied again, because of other processes, before it fails with 409.
    private static let retries = 50

    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// Edits a datafile, or creates it if the project has none. A change that makes no difference stores nothing.
    ///
    /// A change that can move users who take part is refused with 409 unless it is allowed to. The stored users are
    /// counted before the change is stored; a user who is enrolled after the count has passed is not protected.
    ///
    /// - Parameter completion: called on any thread with the project as this edit left it, without later edits of
    ///   others.
    public func edit<Outcome: Sendable>(
        _ sdkKey: String, _ note: Note, by author: Author, moves: MovePolicy, _ change: @escaping Change<Outcome>,
        completion: @escaping @Sendable (Result<(Project, Outcome), CoreError>) -> Void
    ) {
        begin(
            Edit(
                sdkKey: sdkKey, note: note, author: author, moves: moves, change: change, catalog: catalog,
                completion: completion))
    }

    private struct Edit<Outcome: Sendable>: Sendable {
        let sdkKey: String
        let note: Note
        let author: Author
        let moves: MovePolicy
        let change: Change<Outcome>
        let catalog: ProjectCatalog
        let completion: @Sendable (Result<(Project, Outcome), CoreError>) -> Void
        /// The version of the project from which the change moves nobody; `nil` before users were counted.
        var countedVersion: Int64?

        /// Completes the edit, and lets the next one begin.
        func end(_ result: Result<(Project, Outcome), CoreError>) {
            completion(result)
            catalog.endEdit()
        }
    }

    private func begin<Outcome>(_ turn: Edit<Outcome>) {
        catalog.beginEdit { edit(turn, retries: Self.retries) }
    }

    private func edit<Outcome>(_ edit: Edit<Outcome>, retries: Int) {
        // Another process may have stored a newer datafile than this one knows.
        catalog.refresh { result in
            if case .failure(let error) = result { return edit.end(.failure(CoreError(error))) }
            catalog.inBackground { session in
                do throws(CoreError) {
                    try apply(edit, to: try project(edit.sdkKey), session, retries: retries)
                } catch {
                    edit.end(.failure(error))
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
                    let project = try project(sdkKey)
                    let (outcome, datafile, _) = try Self.draft(sdkKey, change, of: project)
                    completion(.success(Draft(project: project, datafile: datafile, outcome: outcome)))
                } catch {
                    completion(.failure(error))
                }
            }
        }
    }

    /// Returns a project; `nil` for the first one, which the edit makes.
    ///
    /// - Throws: 404 if there is none any more, 409 if this server cannot use its datafile.
    private func project(_ sdkKey: String) throws(CoreError) -> Project? {
        let snapshot = catalog.snapshot()
        if let project = snapshot.projects[sdkKey] { return project }
        guard !snapshot.records.isEmpty else { return nil }
        let record = try snapshot.record(sdkKey)
        throw CoreError(
            .conflict, "the datafile of the project '\(record.sdkKey)' must be usable on this server; it is not")
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
        return (outcome, try Project.compile(editor.value, similarTo: project?.datafile), editor.value)
    }

    private func apply<Outcome>(
        _ edit: Edit<Outcome>, to project: Project?, _ session: any StoreSession, retries: Int
    ) throws(CoreError) {
        let (outcome, edited, content) = try Self.draft(edit.sdkKey, edit.change, of: project)
        guard let content else {
            // Only a change of a stored datafile can make no difference.
            if let project { edit.end(.success((project, outcome))) }
            return
        }
        if let project, edit.moves == .refuse, edit.countedVersion != project.version {
            let moves = DefinitionMoves(from: project, to: edited)
            if !moves.isEmpty { return refuseOrRepeat(edit, moves, of: project, retries: retries) }
        }
        let note = AuditNote(
            edit.note.action, of: edit.note.subject, before: edit.note.describe(project?.datafile),
            after: edit.note.describe(edited))
        let bytes = content.encoded()
        catalog.expect(bytes, edited)
        session.putDatafile(
            bytes, sdkKey: edit.sdkKey, revision: edited.revision,
            allocations: AllocationRules.allocations(in: edited), replacing: project?.version ?? 0, makesProject: false,
            note: note, by: edit.author
        ) { result in
            switch result {
            case .failure(let error): edit.end(.failure(CoreError(error)))
            case .success(nil) where retries == 0:
                edit.end(
                    .failure(CoreError(.conflict, "others are changing the datafile; nothing was stored; try again")))
            case .success(nil): self.edit(edit, retries: retries - 1)
            case .success(let stored?):
                // The response must not precede the change in this process.
                catalog.refresh { result in
                    edit.end(
                        result.map { (catalog.project(stored, edited), outcome) }.mapError { CoreError($0) })
                }
            }
        }
    }

    /// Counts the users whom an edit would move, and makes the edit again if there are none.
    private func refuseOrRepeat<Outcome>(
        _ edit: Edit<Outcome>, _ moves: DefinitionMoves, of project: Project, retries: Int
    ) {
        // Other edits need not wait for the first count. If one of them is quicker, they wait for the second.
        let keepsTurn = edit.countedVersion != nil
        if !keepsTurn { catalog.endEdit() }
        PreviewCounter(catalog).count(moves) { result in
            do throws(CoreError) {
                let counts = try result.get().moves
                guard counts.isEmpty else { throw counts.refusal }
                var counted = edit
                counted.countedVersion = project.version
                if keepsTurn { self.edit(counted, retries: retries) } else { begin(counted) }
            } catch {
                if keepsTurn { edit.end(.failure(error)) } else { edit.completion(.failure(error)) }
            }
        }
    }
}
