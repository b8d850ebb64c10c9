public import Bucketing
public import Definitions
public import JSON
public import Storage

/// Edits the definitions of a project, and stores and activates the datafile that is generated from them.
///
/// An edit is applied to the newest stored datafile. Edits of one process take turns. If another process stores an edit
/// meanwhile, this one is applied again to the result of that one, so no edit is lost. Edits run off the event loops,
/// because a large datafile takes long to compile.
public struct ProjectEditor: Sendable {
    /// Changes the definitions; may be called several times.
    ///
    /// - Returns: the result that the caller gets.
    public typealias Change<Outcome> = @Sendable (inout ProjectDefinitions, Project?) throws(CoreError) -> Outcome

    /// The entry of an edit in the audit log.
    public struct Note: Sendable {
        var action: AuditAction
        /// The key of what is edited.
        var subject: String
        /// Describes what is edited, as it is before and after.
        var describe: @Sendable (CompiledDefinitions) -> JSONValue

        public init(
            _ action: AuditAction, of subject: String,
            describe: @escaping @Sendable (CompiledDefinitions) -> JSONValue
        ) {
            self.action = action
            self.subject = subject
            self.describe = describe
        }

        fileprivate func entry<Outcome>(_ draft: Draft<Outcome>) -> AuditNote {
            AuditNote(
                action, of: subject,
                before: draft.project.map { describe($0.compiled) } ?? .null,
                after: describe(draft.compiled))
        }
    }

    /// Whether a change may move enrolled users.
    public enum MovePolicy: String, Sendable, CaseIterable {
        case refuse
        case allow
    }

    private let catalog: ProjectCatalog
    private let policy: ApprovalPolicy
    private let sharing: SharePolicy
    /// The number of times that an edit is applied again, because of other processes, before it fails with 409.
    private static let retries = 50

    public init(_ catalog: ProjectCatalog, _ policy: ApprovalPolicy, sharing: SharePolicy = .refuse(.all)) {
        self.catalog = catalog
        self.policy = policy
        self.sharing = sharing
    }

    /// Edits a datafile, or creates it if the project has none. A change that makes no difference stores nothing.
    ///
    /// A change that can move enrolled users is refused with 409 unless it is allowed to. The stored users are
    /// counted before the change is stored; a user who is enrolled after the count has passed is not protected.
    ///
    /// - Throws: ``HeldChange`` if the change needs the approval of a second person.
    public func edit<Outcome: Sendable>(
        _ sdkKey: String, _ note: Note, by author: Author, moves: MovePolicy, _ change: @escaping Change<Outcome>
    ) async throws -> Edited<Outcome> {
        try await edit(
            Edit(sdkKey: sdkKey, author: author, moves: moves, change: change, notes: { [note.entry($0)] }))
    }

    /// Edits a datafile as ``edit(_:_:by:moves:_:)`` does, and attributes, segments and webhooks in the same transaction.
    public func edit<Outcome: Sendable>(_ edit: Edit<Outcome>) async throws -> Edited<Outcome> {
        await catalog.beginEdit()
        defer { catalog.endEdit() }
        // The version of the project from which the change moves nobody.
        var counted: Int64?
        var retries = Self.retries
        while true {
            // Another process may have stored a newer datafile than this one knows.
            try await catalog.refresh()
            let countedVersion = counted
            let attempt = try await catalog.inBackground { session in
                try await apply(edit, session, countedVersion: countedVersion)
            }
            switch attempt {
            case .stored(let edited): return edited
            case .moves(let moves, let version):
                if counted == nil {
                    // Others need not wait for the first count. If one of them is quicker, they wait for the second.
                    try await catalog.lettingOthersEdit { try await PreviewCounter(catalog).refuse(moves) }
                } else {
                    try await PreviewCounter(catalog).refuse(moves)
                }
                counted = version
            case .outdated where retries == 0:
                throw CoreError(.conflict, "others are changing the datafile; nothing was stored; try again")
            case .outdated: retries -= 1
            }
        }
    }

    /// An edit of a project.
    public struct Edit<Outcome: Sendable>: Sendable {
        let sdkKey: String
        let author: Author
        let moves: MovePolicy
        let change: Change<Outcome>
        /// Returns the attributes, segments and webhooks that the edit defines.
        let schema: @Sendable (Outcome) -> SchemaChange
        /// Returns the entries in the audit log, except for attributes, segments and webhooks.
        let notes: @Sendable (Draft<Outcome>) -> [AuditNote]

        public init(
            sdkKey: String, author: Author, moves: MovePolicy, change: @escaping Change<Outcome>,
            schema: @escaping @Sendable (Outcome) -> SchemaChange = { _ in SchemaChange() },
            notes: @escaping @Sendable (Draft<Outcome>) -> [AuditNote]
        ) {
            self.sdkKey = sdkKey
            self.author = author
            self.moves = moves
            self.change = change
            self.schema = schema
            self.notes = notes
        }
    }

    /// What came of an edit.
    public struct Edited<Outcome: Sendable>: Sendable {
        /// As the edit left it, without later edits of others.
        public let project: Project
        public let outcome: Outcome
        /// Those of ``Edit``; none if the change made no difference.
        public var notes: [AuditNote] = []
    }

    private enum Attempt<Outcome: Sendable>: Sendable {
        case stored(Edited<Outcome>)
        /// The change may move users, and must not before they are counted.
        case moves([DefinitionMoves], version: Int64)
        /// Another process has stored a newer datafile.
        case outdated
    }

    /// A project as a change would leave it.
    public struct Draft<Outcome: Sendable>: Sendable {
        /// The project before the change; `nil` if it has no datafile yet.
        public var project: Project?
        public var compiled: CompiledDefinitions
        public var outcome: Outcome
        /// Whether the change makes a difference.
        var hasChanged = true
        /// What differs between the datafiles, if it is known.
        var edit: DatafileEdit?

        public var datafile: Datafile { compiled.datafile }
    }

    /// Applies a change as ``edit(_:_:by:moves:_:)`` does, but stores nothing.
    public func preview<Outcome: Sendable>(
        _ sdkKey: String, _ change: @escaping Change<Outcome>
    ) async throws -> Draft<Outcome> {
        try await catalog.refresh()
        return try await catalog.inBackground { _ in
            let draft = try Self.draft(sdkKey, change, of: try project(sdkKey))
            _ = try checkIDs(draft, in: sdkKey)
            return draft
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

    /// See ``ProjectCatalog/Snapshot/checkIDs(of:replacing:in:_:)``.
    private func checkIDs(_ draft: Draft<some Sendable>, in sdkKey: String) throws(CoreError) -> Int64? {
        guard draft.hasChanged else { return nil }
        return try catalog.snapshot().checkIDs(
            of: draft.datafile, replacing: draft.project?.datafile, in: sdkKey, sharing)
    }

    /// Returns a project as a change would leave it.
    static func draft<Outcome>(
        _ sdkKey: String, _ change: Change<Outcome>, of project: Project?
    ) throws(CoreError) -> Draft<Outcome> {
        let edited = try CompiledDefinitions.edited(project?.compiled, sdkKey: sdkKey) {
            definitions throws(CoreError) in try change(&definitions, project)
        }
        return Draft(
            project: project, compiled: edited.compiled, outcome: edited.outcome, hasChanged: edited.hasChanged,
            edit: edited.edit)
    }

    /// Returns the edited datafile as it is stored.
    private static func datafile(_ draft: Draft<some Sendable>) -> DatafileWrite {
        let definitions = draft.compiled.definitions
        let former = draft.project.flatMap { project in project.parts.map { (project.definitions, $0) } }
        guard let (parts, change) = definitions.parts(replacing: former, draft.edit) else {
            return .whole(definitions.content)
        }
        return .edit(parts, change)
    }

    /// - Parameter countedVersion: the version of the project from which the change moves nobody; `nil` before users were
    ///   counted.
    private func apply<Outcome>(
        _ edit: Edit<Outcome>, _ session: any StoreSession, countedVersion: Int64?
    ) async throws -> Attempt<Outcome> {
        let present = try project(edit.sdkKey)
        try await policy.expectUnchanged(present, session)
        let draft = try Self.draft(edit.sdkKey, edit.change, of: present)
        let newest = try checkIDs(draft, in: edit.sdkKey)
        let (project, edited, definitions) = (draft.project, draft.datafile, draft.compiled.definitions)
        let schema = edit.schema(draft.outcome)
        // Only a change of a stored datafile can make no difference.
        guard draft.hasChanged || !schema.isEmpty else {
            return project.map { .stored(Edited(project: $0, outcome: draft.outcome)) } ?? .outdated
        }
        if let project, edit.moves == .refuse, countedVersion != project.version {
            let moves = catalog.moves(from: project, to: draft.compiled, changing: schema.segments)
            if !moves.isEmpty { return .moves(moves, version: project.version) }
        }
        let made = edit.notes(draft)
        let all =
            made + schema.webhooks.map(\.note)
            + schema.segments.map { AuditNote($0, replacing: project?.schema.segments[$0.name]?.conditions) }
        try policy.expectNoOther(
            than: project, in: catalog.snapshot().projects.values.filter { $0.sdkKey != edit.sdkKey },
            changing: schema.segments)
        let notes = try policy.check(from: project, to: draft.compiled, changing: schema.segments, all)
            .prefix(made.count)
        guard draft.hasChanged else {
            guard try await session.write(.putSchema(schema, approval: policy.approval, by: edit.author)) else {
                return .outdated
            }
            try await catalog.refresh()
            return project.map { .stored(Edited(project: $0, outcome: draft.outcome)) } ?? .outdated
        }
        let datafile = Self.datafile(draft)
        let recorded = project.flatMap { $0.isStoredHere ? $0.datafile : nil }
        catalog.expect(
            .init(sdkKey: edit.sdkKey, former: project?.version, datafile: datafile, compiled: draft.compiled))
        // What was not stored is expected no longer.
        defer { catalog.expect(nil) }
        let stored = try await session.write(
            .putDatafile(
                datafile, sdkKey: edit.sdkKey, revision: edited.revision,
                allocations: AllocationRules.allocations(in: edited, since: recorded),
                statuses: StatusRules.statuses(in: edited, since: recorded), series: definitions.series,
                replacing: project?.version ?? 0, among: newest,
                freezing: definitions.freezes(since: project?.definitions, draft.edit),
                makesProject: false, schema: schema, approval: policy.approval, notes: Array(notes),
                by: edit.author))
        guard let stored else { return .outdated }
        // The response must not precede the change in this process.
        try await catalog.refresh()
        return .stored(
            Edited(project: catalog.project(stored, draft.compiled), outcome: draft.outcome, notes: made))
    }
}
