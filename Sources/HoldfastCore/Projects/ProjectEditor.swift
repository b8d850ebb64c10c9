public import Bucketing
public import Definitions
public import JSON
public import Storage

/// Edits the definitions of a project, and stores and activates the datafile that is generated from them.
///
/// An edit is applied to the newest stored datafile. The edits of one process run one after the other (``EditQueue``).
/// If another process stores a datafile meanwhile, the edit is applied again to that datafile, so no edit is lost.
/// Edits run off the event loops, because a large datafile takes long to compile.
///
/// ``edit(_:)`` repeats ``apply(_:_:countedVersion:)`` until it succeeds. ``preview(_:_:)`` stores nothing.
public struct ProjectEditor: Sendable {
    /// Changes the definitions of a project. May be called several times, each time with the newest definitions.
    ///
    /// - Returns: the outcome that ``edit(_:)`` passes on to its caller.
    public typealias Change<Outcome> = @Sendable (inout ProjectDefinitions, Project?) throws(CoreError) -> Outcome

    /// The entry of the audit log about an edit of one element.
    public struct Note: Sendable {
        var action: AuditAction
        /// The key of the element.
        var subject: String
        /// Returns the element in some definitions. The entry has it before and after the edit.
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
        /// Refuses a change that would move enrolled users.
        case refuse
        /// Makes the change without counting the users whom it moves.
        case allow
    }

    private let catalog: ProjectCatalog
    private let policy: ApprovalPolicy
    private let sharing: SharePolicy
    /// The maximum number of times that an edit is applied again because other processes have stored datafiles. After
    /// that, the edit fails with 409.
    private static let retryLimit = 50

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

    /// Edits a datafile as ``edit(_:_:by:moves:_:)`` does, and attributes, segments and webhooks in the same
    /// transaction.
    public func edit<Outcome: Sendable>(_ edit: Edit<Outcome>) async throws -> Edited<Outcome> {
        await catalog.edits.begin()
        defer { catalog.edits.end() }
        var countedVersion: Int64?
        var retries = 0
        while true {
            // Another process may have stored a newer datafile than this one knows.
            try await catalog.refresh()
            let versionOfCount = countedVersion
            let attempt = try await catalog.inBackground { session in
                try await apply(edit, session, countedVersion: versionOfCount)
            }
            switch attempt {
            case .stored(let edited): return edited
            case .moves(let moves, let version):
                let counter = PreviewCounter(catalog)
                if countedVersion == nil {
                    // Other edits run during the first count, because it takes long. If one of them changes the
                    // project, the users are counted again, and then the others wait. So this edit is not delayed
                    // forever.
                    try await catalog.edits.yield { try await counter.refuse(moves) }
                } else {
                    try await counter.refuse(moves)
                }
                countedVersion = version
            case .outdated:
                guard retries < Self.retryLimit else {
                    throw CoreError(.conflict, "others are changing the datafile; nothing was stored; try again")
                }
                retries += 1
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

    /// The result of an edit.
    public struct Edited<Outcome: Sendable>: Sendable {
        /// The project as this edit has left it, without later edits.
        public let project: Project
        /// What the change has returned.
        public let outcome: Outcome
        /// The ``Edit/notes``; empty if the change made no difference.
        public var notes: [AuditNote] = []
    }

    private enum Attempt<Outcome: Sendable>: Sendable {
        /// The change is stored, or it made no difference.
        case stored(Edited<Outcome>)
        /// The change may move users, so they must be counted before it is stored. The version is that of the project
        /// before the change.
        case moves([DefinitionMoves], version: Int64)
        /// Another process has stored a newer datafile.
        case outdated
    }

    /// A project as a change would leave it.
    public struct Draft<Outcome: Sendable>: Sendable {
        /// The project before the change; `nil` if it has no datafile yet.
        public var project: Project?
        /// The definitions after the change.
        public var compiled: CompiledDefinitions
        /// What the change has returned.
        public var outcome: Outcome
        /// Whether the change makes a difference.
        var hasChanged = true
        /// The elements of the datafile that differ; `nil` if they are not known.
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

    /// Returns a project; `nil` if the server has no projects, so that the edit creates the first one.
    ///
    /// - Throws: 404 if the project has been deleted; 409 if this server cannot use its datafile.
    private func project(_ sdkKey: String) throws(CoreError) -> Project? {
        let snapshot = catalog.snapshot()
        if let project = snapshot.projects[sdkKey] { return project }
        guard !snapshot.records.isEmpty else { return nil }
        let record = try snapshot.record(sdkKey)
        throw CoreError(
            .conflict, "the datafile of the project '\(record.sdkKey)' must be usable on this server; it is not")
    }

    /// Checks the ids that a draft adds; see ``ProjectCatalog/Snapshot/checkIDs(of:replacing:in:_:)``.
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

    // MARK: Applying

    /// Applies an edit to the newest datafile, and stores the result.
    ///
    /// - Parameter countedVersion: the version of the project for which users were counted. The count has shown that
    ///   the change of this version would move nobody. `nil` before users are counted.
    private func apply<Outcome>(
        _ edit: Edit<Outcome>, _ session: any StoreSession, countedVersion: Int64?
    ) async throws -> Attempt<Outcome> {
        let present = try project(edit.sdkKey)
        try await policy.expectUnchanged(present, session)
        let draft = try Self.draft(edit.sdkKey, edit.change, of: present)
        let newest = try checkIDs(draft, in: edit.sdkKey)
        let schema = edit.schema(draft.outcome)
        guard draft.hasChanged || !schema.isEmpty else { return Self.unchanged(draft) }
        if let project = draft.project, edit.moves == .refuse, countedVersion != project.version {
            let moves = catalog.moves(from: project, to: draft.compiled, changing: schema.segments)
            if !moves.isEmpty { return .moves(moves, version: project.version) }
        }
        let notes = edit.notes(draft)
        let markedNotes = try checkApproval(of: edit, draft, schema, notes)
        guard draft.hasChanged else {
            let isStored = try await session.write(.putSchema(schema, approval: policy.approval, by: edit.author))
            guard isStored else { return .outdated }
            try await catalog.refresh()
            return Self.unchanged(draft)
        }
        guard let stored = try await store(draft, of: edit, schema, notes: markedNotes, among: newest, session) else {
            return .outdated
        }
        return .stored(
            Edited(project: catalog.project(stored, draft.compiled), outcome: draft.outcome, notes: notes))
    }

    /// Returns the result of a change that makes no difference to the datafile.
    private static func unchanged<Outcome>(_ draft: Draft<Outcome>) -> Attempt<Outcome> {
        // There is a project: without a stored datafile, each change makes a difference.
        guard let project = draft.project else { return .outdated }
        return .stored(Edited(project: project, outcome: draft.outcome))
    }

    /// Checks that the change needs no approval, or is exactly what was approved.
    ///
    /// - Parameters:
    ///   - schema: the attributes, segments and webhooks that the edit defines. They are part of what is approved.
    ///   - notes: the entries of the edit in the audit log.
    /// - Returns: these entries, marked if the change was exempt from approval.
    /// - Throws: ``HeldChange`` if the change needs an approval; 409 if it cannot be approved, or differs from the
    ///   approved one.
    private func checkApproval<Outcome>(
        of edit: Edit<Outcome>, _ draft: Draft<Outcome>, _ schema: SchemaChange, _ notes: [AuditNote]
    ) throws -> [AuditNote] {
        let project = draft.project
        try policy.expectNoOther(
            than: project, in: catalog.snapshot().projects.values.filter { $0.sdkKey != edit.sdkKey },
            changing: schema.segments)
        let segmentNotes = schema.segments.map { segment in
            AuditNote(segment, replacing: project?.schema.segments[segment.name]?.conditions)
        }
        let checked = try policy.check(
            from: project, to: draft.compiled, changing: schema.segments,
            notes + schema.webhooks.map(\.note) + segmentNotes)
        // The store records segments and webhooks itself.
        return Array(checked.prefix(notes.count))
    }

    /// Stores the edited datafile. Returns once the catalog has it.
    ///
    /// - Parameter newest: the version of the newest datafile of all projects when the ids were checked. The datafile
    ///   is stored only if this is still the newest version. `nil` if no ids were checked.
    /// - Returns: `nil` if another process has stored a newer datafile.
    private func store<Outcome>(
        _ draft: Draft<Outcome>, of edit: Edit<Outcome>, _ schema: SchemaChange, notes: [AuditNote],
        among newest: Int64?, _ session: any StoreSession
    ) async throws -> StoredDatafile? {
        let project = draft.project
        let edited = draft.datafile
        let definitions = draft.compiled.definitions
        let datafile = Self.storedForm(of: draft)
        // If this process has stored the former datafile, the store has its allocations and statuses already.
        let recorded = project.flatMap { $0.isStoredHere ? $0.datafile : nil }
        catalog.setPending(
            .init(sdkKey: edit.sdkKey, formerVersion: project?.version, datafile: datafile, compiled: draft.compiled))
        // A datafile that was not stored must not be taken for a later one.
        defer { catalog.setPending(nil) }
        let stored: StoredDatafile? = try await session.write(
            .putDatafile(
                datafile, sdkKey: edit.sdkKey, revision: edited.revision,
                allocations: AllocationRules.allocations(in: edited, since: recorded),
                statuses: StatusRules.statuses(in: edited, since: recorded), series: definitions.series,
                replacing: project?.version ?? 0, among: newest,
                freezing: definitions.freezes(since: project?.definitions, draft.edit),
                makesProject: false, schema: schema, approval: policy.approval, notes: notes, by: edit.author))
        guard let stored else { return nil }
        // The response must not precede the change in this process.
        try await catalog.refresh()
        return stored
    }

    /// Returns the edited datafile in the form in which it is stored: in parts with what has changed, or else whole.
    private static func storedForm(of draft: Draft<some Sendable>) -> DatafileWrite {
        let definitions = draft.compiled.definitions
        let former = draft.project.flatMap { project in project.parts.map { (project.definitions, $0) } }
        guard let (parts, change) = definitions.parts(replacing: former, draft.edit) else {
            return .whole(definitions.content)
        }
        return .edit(parts, change)
    }
}
