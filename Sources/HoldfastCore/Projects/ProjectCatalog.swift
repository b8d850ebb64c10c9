import Bucketing
import Chronology
import Definitions
import Dispatch
import JSON
public import Logging
public import Storage
internal import Synchronization

/// The active projects and the schema of attributes, in memory. It follows the changes that this and other processes
/// store.
public final class ProjectCatalog: Sendable {
    public struct Snapshot: Sendable {
        /// The projects whose datafiles this server can use, by SDK key.
        public var projects: [String: Project] = [:]
        /// All projects, in the order of their SDK keys.
        public var records: [ProjectRecord] = []
        /// The project of requests that name none; `nil` if there is none that this server can use.
        var defaultProject: Project?
        /// SDK keys whose active datafile cannot be used here.
        var superseded: Set<String> = []
        /// The active datafiles that are stored in parts, by SDK key.
        var parts: [String: DatafileParts] = [:]
        public var schema = AttributeSchema.empty
        /// The version of the newest datafile; all datafiles up to it have been read.
        public var version: Int64 = 0
        /// The ``Storage/ProjectState/changes`` of the last read; -1 before the first.
        public var changes: Int64 = -1
        /// The generation of the store.
        public var generation = StoreGeneration(storeID: 0, epoch: 0)
        /// See ``Storage/ProjectState/formerEpochs``.
        var formerEpochs: Set<Int64> = []
    }

    public let logger: Logger
    /// The rules of the store. The catalog updates the values that they take from the definitions.
    let rules: ProfileRules
    private let current = Mutex(Snapshot())
    /// Increases with each new snapshot. Event loops take the lock only when it has changed.
    private let generation = Atomic<UInt64>(1)
    private let observers = Mutex<[@Sendable () -> Void]>([])
    private let refreshes = Mutex(Refreshes())
    private let edits = Mutex(Edits())
    /// The number of counts of users that are in progress.
    let counting = Atomic<Int>(0)
    /// The datafile of the edit in progress, which need not be compiled again once it is stored.
    private let expected = Mutex<Expected?>(nil)

    struct Expected {
        let sdkKey: String
        /// The version that it replaces; `nil` for the first one.
        let former: Int64?
        let datafile: DatafileWrite
        let compiled: CompiledDefinitions
    }

    /// The callers that wait for the next read, and whether a read is in progress.
    private struct Refreshes {
        var waiting: [@Sendable (Result<Void, StorageError>) -> Void] = []
        var isReading = false
    }

    /// The edits of datafiles that wait for the one in progress.
    private struct Edits {
        var waiting: [@Sendable () -> Void] = []
        var isEditing = false
    }

    /// The session that reads the projects and the schema.
    let updates: BackgroundSession
    /// The session on which definitions of admins are checked, compiled and stored.
    let definitions: BackgroundSession

    /// Asks the store for changes by other processes, if it does not notify of them.
    private let timer = RepeatedTask(every: .milliseconds(250))
    /// How many of these queries are skipped while the store notifies. Not all, because a dead connection may not have
    /// been detected yet.
    private static let skipped = 19
    /// How many were skipped since the last one.
    private let skips = Atomic<Int>(0)
    private let notification = Mutex<(any ProjectWatch)?>(nil)
    /// Whether the last read failed.
    private let hasFailed = Atomic<Bool>(false)

    /// - Throws: `StorageError` when the store cannot be read.
    public init(store: any Store, logger: Logger) throws(StorageError) {
        self.logger = logger
        rules = store.rules
        updates = try BackgroundSession(store, label: "project-catalog")
        definitions = try BackgroundSession(store, label: "definitions")
        try updateAndWait()
        let watch = store.watchProjects { [weak self] in self?.refresh { _ in } }
        notification.withLock { $0 = watch }
        timer.start { [weak self] in await self?.lookForChanges() }
    }

    deinit {
        notification.withLock { $0 }?.cancel()
    }

    /// Ends the work in the background and releases its connections; call it before the store is closed. Blocks until
    /// done. Decisions continue with the projects in memory.
    public func close() {
        notification.withLock { $0 }?.cancel()
        updates.close()
        definitions.close()
    }

    private var isNotified: Bool {
        !hasFailed.load(ordering: .relaxed) && notification.withLock { $0 }?.isActive == true
    }

    private func lookForChanges() async {
        if isNotified, skips.add(1, ordering: .relaxed).newValue <= Self.skipped { return }
        skips.store(0, ordering: .relaxed)
        do throws(StorageError) {
            try await refresh()
        } catch {
            // After another failure decisions continue with the projects in memory; readiness reports the store.
            if case .closed = error { timer.close() }
        }
    }

    /// Reads what has been stored.
    public func refresh() async throws(StorageError) {
        try await completed { refresh($0) }
    }

    /// - Parameter completion: called on a queue of the catalog.
    private func refresh(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        let isFirst = refreshes.withLock { refreshes in
            refreshes.waiting.append(completion)
            defer { refreshes.isReading = true }
            return !refreshes.isReading
        }
        if isFirst { updates.start { await self.update($0) } }
    }

    /// Reads all changes that have been stored. Blocks; only for the start of the server.
    func updateAndWait() throws(StorageError) {
        let outcome = Outcome<Void>()
        refresh { outcome.settle($0) }
        try outcome.wait().get()
    }

    /// Runs work that checks, compiles and stores definitions of admins, one at a time and off the event loops.
    public func inBackground<Value: Sendable>(
        _ work: @escaping @Sendable (any StoreSession) async throws -> Value
    ) async throws -> Value {
        try await definitions.run(work)
    }

    /// Waits until all earlier edits of datafiles in this process have ended, because concurrent edits would conflict
    /// and have to be repeated. ``endEdit()`` must follow in any case.
    func beginEdit() async {
        await settled { begin in
            let isFirst = edits.withLock { edits in
                defer { edits.isEditing = true }
                if edits.isEditing { edits.waiting.append { begin(()) } }
                return !edits.isEditing
            }
            if isFirst { begin(()) }
        }
    }

    /// Ends the edit in progress, runs a function, and begins an edit again.
    func lettingOthersEdit(during work: () async throws -> Void) async throws {
        endEdit()
        do {
            try await work()
        } catch {
            await beginEdit()
            throw error
        }
        await beginEdit()
    }

    func endEdit() {
        let next = edits.withLock { edits in
            edits.isEditing = !edits.waiting.isEmpty
            return edits.isEditing ? edits.waiting.removeFirst() : nil
        }
        next?()
    }

    /// Registers a function to be called after each change, on a queue of the catalog.
    public func observe(_ changed: @escaping @Sendable () -> Void) {
        observers.withLock { $0.append(changed) }
    }

    /// Reads for all callers that wait now, and again for those that arrive meanwhile. One read at a time, so that
    /// states arrive in order.
    private func update(_ session: any StoreSession) async {
        while true {
            let waiting = refreshes.withLock { refreshes in
                defer { refreshes.waiting = [] }
                refreshes.isReading = !refreshes.waiting.isEmpty
                return refreshes.waiting
            }
            guard !waiting.isEmpty else { return }
            let result = await Result.of { () throws(StorageError) in try await read(session) }
            for completion in waiting { completion(result) }
        }
    }

    private func read(_ session: any StoreSession) async throws(StorageError) {
        let known = snapshot()
        do throws(StorageError) {
            let state = try await session.read(
                .projects(
                    ifChangedSince: known.changes, datafilesAfter: known.version, elementsAfter: known.version))
            hasFailed.store(false, ordering: .relaxed)
            guard let state else { return }
            guard known.version == 0 || state.generation == known.generation else {
                // The store has gone back in time: what was read before may not be there any more.
                current.withLock { snapshot in
                    (snapshot.changes, snapshot.version, snapshot.generation) = (-1, 0, state.generation)
                    snapshot.parts = [:]
                }
                return try await read(session)
            }
            take(state)
        } catch {
            hasFailed.store(true, ordering: .relaxed)
            throw error
        }
    }

    /// Keeps a compiled datafile that is about to be stored.
    func expect(_ datafile: Expected?) {
        expected.withLock { $0 = datafile }
    }

    /// Returns the datafile that this process has stored, if a stored one is the same.
    ///
    /// - Parameter former: the version of the project that is known so far.
    private func expected(_ stored: StoredDatafile, after former: Int64?) -> Expected? {
        expected.withLock { expected in
            guard expected?.sdkKey == stored.sdkKey, expected?.former == former else { return nil }
            switch (expected?.datafile, stored.body) {
            case (.edit(let parts, _), .parts(let others)) where parts == others: break
            case (.edit(_, let change), .change(let other)) where change.hasSameParts(as: other): break
            case (.whole(let content), .whole(let other)) where content == other: break
            default: return nil
            }
            defer { expected = nil }
            return expected
        }
    }

    /// Returns the project with a datafile that has just been stored, even if a newer one has been stored since.
    func project(_ stored: StoredDatafile, _ compiled: CompiledDefinitions) -> Project {
        if let project = snapshot().projects[stored.sdkKey], project.version == stored.version { return project }
        return Project(stored, compiled, isStoredHere: true)
    }

    private func take(_ state: ProjectState) {
        var next = snapshot()
        next.changes = state.changes
        next.schema = state.schema
        next.records = state.projects
        next.version = state.newestDatafile
        (next.generation, next.formerEpochs) = (state.generation, state.formerEpochs)
        let keys = Set(state.projects.map(\.sdkKey))
        next.projects = next.projects.filter { keys.contains($0.key) }
        next.parts = next.parts.filter { keys.contains($0.key) }
        let forced = Dictionary(grouping: state.forcedVariations, by: \.sdkKey)
        for stored in state.datafiles {
            var stored = stored
            let known = expected(stored, after: next.projects[stored.sdkKey]?.version)
            if let known {
                stored.body = known.datafile.body
            } else if let parts = stored.body.parts(after: next.parts[stored.sdkKey]) {
                stored.body = .parts(parts)
            }
            next.parts[stored.sdkKey] = stored.body.parts(after: nil)
            do throws(CoreError) {
                next.projects[stored.sdkKey] =
                    if let known {
                        Project(stored, known.compiled, isStoredHere: true)
                    } else {
                        try Project(stored, similarTo: next.projects[stored.sdkKey])
                    }
                next.superseded.remove(stored.sdkKey)
            } catch {
                // For example, a newer release wrote it.
                next.superseded.insert(stored.sdkKey)
                logger.error(
                    "a stored datafile is not usable; the former one stays active",
                    metadata: ["sdk_key": "\(stored.sdkKey)", "error": "\(error.detail)"])
            }
        }
        next.projects = next.projects.mapValues { [next] project in
            Project(
                project, forced: forced[project.sdkKey] ?? [], schema: next.schema, catalogVersion: next.version,
                isSuperseded: next.superseded.contains(project.sdkKey))
        }
        let datafiles = next.projects.values.map(\.datafile)
        rules.archived.set(Self.archived(in: datafiles))
        rules.lifetimes.set(Self.lifetimes(in: datafiles, otherwise: rules.assignmentTTL))
        next.defaultProject = next.records.first(where: \.isDefault).flatMap { next.projects[$0.sdkKey] }
        current.withLock { [next] in $0 = next }
        generation.add(1, ordering: .releasing)
        for changed in observers.withLock({ $0 }) { changed() }
    }

    /// The experiments that are archived in each project that has them.
    private static func archived(in datafiles: [Datafile]) -> Set<Identifier> {
        var archived: Set<Identifier> = []
        for datafile in datafiles {
            for experiment in datafile.experiments where experiment.isArchived { archived.insert(experiment.id) }
        }
        return archived.filter { id in
            datafiles.allSatisfy { $0.experiment(id: id)?.isArchived ?? true }
        }
    }

    /// Returns the lifetimes of assignments that definitions give to experiments; `nil` means forever.
    /// If projects share an experiment, the longest lifetime counts.
    static func lifetimes(in datafiles: [Datafile], otherwise: TimeSpan?) -> [Identifier: TimeSpan?] {
        var defined: Set<Identifier> = []
        for datafile in datafiles {
            for experiment in datafile.experiments where datafile.assignmentLifetime(of: experiment) != nil {
                defined.insert(experiment.id)
            }
        }
        var lifetimes: [Identifier: TimeSpan?] = [:]
        guard !defined.isEmpty else { return lifetimes }
        for datafile in datafiles {
            for experiment in datafile.experiments where defined.contains(experiment.id) {
                let lifetime = datafile.assignmentLifetime(of: experiment).map(\.span) ?? otherwise
                if let known = lifetimes[experiment.id] {
                    lifetimes[experiment.id] = .some(known.flatMap { known in lifetime.map { max(known, $0) } })
                } else {
                    lifetimes[experiment.id] = .some(lifetime)
                }
            }
        }
        return lifetimes
    }

    /// Creates a project with an empty datafile, or changes its settings; see ``ProjectRules``. Returns once this
    /// catalog has the change.
    public func putProject(
        _ change: ProjectSettings, approval: Approval? = nil, by author: Author
    ) async throws(StorageError) -> ProjectSettingsResult {
        let empty = Datafile.empty(projectID: change.sdkKey, sdkKey: change.sdkKey).encoded()
        let result = try await definitions.run { session throws(StorageError) in
            try await session.write(.putProject(change, datafile: empty, approval: approval, by: author))
        }
        try await refresh()
        return result
    }

    /// Deletes a project with an empty datafile. Returns once this catalog has the change.
    public func removeProject(
        _ project: Project, by author: Author
    ) async throws(StorageError) -> ProjectRemovalResult {
        let result = try await definitions.run { session throws(StorageError) in
            try await session.write(.removeProject(sdkKey: project.sdkKey, expecting: project.version, by: author))
        }
        try await refresh()
        return result
    }

    /// Checks an epoch that an edge presents, with its place in that feed or its version of the definitions. If the
    /// store lacks what is presented although it should have it, the store has gone back in time and gets a new
    /// generation.
    ///
    /// - Parameter isAhead: whether the presented place or version is ahead of the store's own epoch.
    /// - Returns: whether the epoch belongs to the current generation.
    public func isPresent(_ epoch: Int64, isAhead: Bool, by author: Author) async throws(StorageError) -> Bool {
        if epoch == snapshot().generation.epoch, !isAhead { return true }
        // Another process may have renewed the generation.
        try await refresh()
        let known = snapshot()
        guard epoch != known.generation.epoch || isAhead else { return true }
        guard known.generation.epoch != 0, !known.formerEpochs.contains(epoch) else { return false }
        logger.warning(
            "an edge has seen what this database lacks: the database has gone back in time, so that all edges copy it anew",
            metadata: ["edge": "\(author.name)", "generation": "\(known.generation.text)"])
        let presented = epoch == known.generation.epoch ? 0 : epoch
        try await definitions.run { session throws(StorageError) in
            try await session.write(.renewGeneration(known.generation, presented: presented, by: author))
        }
        try await refresh()
        return false
    }

    public func snapshot() -> Snapshot {
        current.withLock { $0 }
    }

    public var currentGeneration: UInt64 { generation.load(ordering: .acquiring) }
}
