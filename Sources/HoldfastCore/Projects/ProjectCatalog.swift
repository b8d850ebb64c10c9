import Bucketing
import Chronology
import Definitions
import Dispatch
public import Logging
public import Storage
internal import Synchronization

/// The active projects and the schema of attributes, in memory. It follows the changes that this and other processes
/// store.
///
/// The store notifies the catalog of changes if it can, and the catalog also asks for them at intervals (``poll()``).
/// Each read fetches only what has changed since the last one, and ``activate(_:)`` replaces the ``Snapshot``. Event
/// loops use the snapshot through a ``ProjectView``. ``ProjectEditor`` edits definitions, and reads its own changes
/// back from the store.
public final class ProjectCatalog: Sendable {
    /// All that the catalog knows, as of one read.
    public struct Snapshot: Sendable {
        /// The projects whose datafiles this server can use, by SDK key.
        public var projects: [String: Project] = [:]
        /// All projects, in the order of their SDK keys.
        public var records: [ProjectRecord] = []
        /// The project of requests that name none; `nil` if there is none that this server can use.
        var defaultProject: Project?
        /// The SDK keys of the projects whose active datafile this server cannot use. An earlier one stays in
        /// ``projects``.
        var superseded: Set<String> = []
        /// The active datafiles that are stored in parts, by SDK key.
        var parts: [String: DatafileParts] = [:]
        public var schema = AttributeSchema.empty
        /// The version of the newest datafile of all projects. All datafiles up to this version have been read.
        public var version: Int64 = 0
        /// The ``Storage/ProjectState/changes`` of the last read; -1 before the first.
        public var changes: Int64 = -1
        /// The generation of the store.
        public var generation = StoreGeneration(storeID: 0, epoch: 0)
        /// See ``Storage/ProjectState/formerEpochs``.
        var formerEpochs: Set<Int64> = []
    }

    public let logger: Logger
    /// The rules by which the store changes profiles. The catalog keeps up to date what they take from the definitions:
    /// the lifetimes of assignments and the archived experiments.
    let rules: ProfileRules
    private let current = Mutex(Snapshot())
    /// Increases with each new snapshot. Event loops take the lock only when it has changed.
    private let generation = Atomic<UInt64>(1)
    private let observers = Mutex<[@Sendable () -> Void]>([])
    private let refreshes = Mutex(Refreshes())
    /// Serializes the edits of this process.
    let edits = EditQueue()
    /// The number of counts of users that are in progress.
    let countsInProgress = Atomic<Int>(0)
    /// The datafile of the edit in progress. When the catalog reads it back from the store, it need not be compiled
    /// again.
    private let pending = Mutex<PendingDatafile?>(nil)

    /// A datafile that this process has compiled, and is about to store.
    struct PendingDatafile {
        let sdkKey: String
        /// The version of the datafile that it replaces; `nil` for the first one of a project.
        let formerVersion: Int64?
        let datafile: DatafileWrite
        let compiled: CompiledDefinitions
    }

    /// The callers that wait for the next read, and whether a read is in progress.
    private struct Refreshes {
        var waiting: [@Sendable (Result<Void, StorageError>) -> Void] = []
        var isReading = false
    }

    /// The session that reads the projects and the schema.
    let updates: BackgroundSession
    /// The session on which definitions of admins are checked, compiled and stored.
    let definitions: BackgroundSession

    /// Polls the store for changes by other processes.
    private let timer = RepeatedTask(every: .milliseconds(250))
    /// The number of polls that are skipped after each poll while the store notifies of changes, so that one poll is
    /// made every 5 seconds. The polls are still needed, because the connection that notifies may be dead without
    /// anybody having noticed.
    private static let skippedPolls = 19
    /// The number of polls that were skipped since one was made.
    private let skipCount = Atomic<Int>(0)
    /// The notifications of the store; `nil` if it cannot notify.
    private let watch = Mutex<(any ProjectWatch)?>(nil)
    /// Whether the last read failed. Then every poll is made.
    private let hasFailed = Atomic<Bool>(false)

    /// - Throws: `StorageError` when the store cannot be read.
    public init(store: any Store, logger: Logger) throws(StorageError) {
        self.logger = logger
        rules = store.rules
        updates = try BackgroundSession(store, label: "project-catalog")
        definitions = try BackgroundSession(store, label: "definitions")
        try updateAndWait()
        let watch = store.watchProjects { [weak self] in self?.refresh { _ in } }
        self.watch.withLock { $0 = watch }
        timer.start { [weak self] in await self?.poll() }
    }

    deinit {
        watch.withLock { $0 }?.cancel()
    }

    /// Ends the work in the background and releases its connections; call it before the store is closed. Blocks until
    /// done. Decisions continue with the projects in memory.
    public func close() {
        watch.withLock { $0 }?.cancel()
        updates.close()
        definitions.close()
    }

    /// Returns all that the catalog knows now. It takes a lock, so event loops use a ``ProjectView`` instead.
    public func snapshot() -> Snapshot {
        current.withLock { $0 }
    }

    /// The number of the current snapshot. It increases with each change.
    public var currentGeneration: UInt64 { generation.load(ordering: .acquiring) }

    /// Registers a function to be called after each change, on a queue of the catalog.
    public func observe(_ changed: @escaping @Sendable () -> Void) {
        observers.withLock { $0.append(changed) }
    }

    /// Runs work that checks, compiles and stores definitions of admins, one at a time and off the event loops.
    public func inBackground<Value: Sendable>(
        _ work: @escaping @Sendable (any StoreSession) async throws -> Value
    ) async throws -> Value {
        try await definitions.run(work)
    }

    // MARK: Following the store

    /// Whether the store notifies of changes, as far as this process knows.
    private var isNotified: Bool {
        !hasFailed.load(ordering: .relaxed) && watch.withLock { $0 }?.isActive == true
    }

    /// Reads the changes of other processes. Skips most calls while the store notifies of changes.
    private func poll() async {
        if isNotified, skipCount.add(1, ordering: .relaxed).newValue <= Self.skippedPolls { return }
        skipCount.store(0, ordering: .relaxed)
        do throws(StorageError) {
            try await refresh()
        } catch {
            // A closed store stays closed. After any other failure, decisions continue with the projects in memory, and
            // readiness reports that the store fails.
            if case .closed = error { timer.close() }
        }
    }

    /// Reads all changes that have been stored. The snapshot has them once this returns.
    public func refresh() async throws(StorageError) {
        try await completed { refresh($0) }
    }

    /// Reads all changes that have been stored by now. Joins the next read if one is in progress already, because that
    /// may have missed the newest change.
    ///
    /// - Parameter completion: called on a queue of the catalog.
    private func refresh(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        let isFirst = refreshes.withLock { refreshes in
            refreshes.waiting.append(completion)
            defer { refreshes.isReading = true }
            return !refreshes.isReading
        }
        if isFirst { updates.start { await self.readForAllWaiting($0) } }
    }

    /// Reads all changes that have been stored, as ``refresh()`` does. Blocks; only for the start of the server.
    func updateAndWait() throws(StorageError) {
        let outcome = Outcome<Void>()
        refresh { outcome.settle($0) }
        try outcome.wait().get()
    }

    /// Reads for all callers that wait now, and again for those that arrive meanwhile. There is one read at a time, so
    /// that states arrive in order.
    private func readForAllWaiting(_ session: any StoreSession) async {
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

    /// Reads what has changed since the last read, and activates it.
    private func read(_ session: any StoreSession) async throws(StorageError) {
        let known = snapshot()
        do throws(StorageError) {
            let state = try await session.read(
                .projects(
                    ifChangedSince: known.changes, datafilesAfter: known.version, elementsAfter: known.version))
            hasFailed.store(false, ordering: .relaxed)
            guard let state else { return }
            guard known.version == 0 || state.generation == known.generation else {
                // The store has gone back in time, so what was read before may not be there any more. Reads everything.
                current.withLock { snapshot in
                    snapshot.changes = -1
                    snapshot.version = 0
                    snapshot.generation = state.generation
                    snapshot.parts = [:]
                }
                return try await read(session)
            }
            activate(state)
        } catch {
            hasFailed.store(true, ordering: .relaxed)
            throw error
        }
    }

    // MARK: The datafile of the edit in progress

    /// Keeps a compiled datafile that is about to be stored, until the catalog has read it back.
    ///
    /// - Parameter datafile: `nil` to forget a datafile that was not stored.
    func setPending(_ datafile: PendingDatafile?) {
        pending.withLock { $0 = datafile }
    }

    /// Returns the pending datafile, and forgets it, if it is the one that was read from the store.
    ///
    /// - Parameter formerVersion: the version of the project in the snapshot.
    private func takePending(_ stored: StoredDatafile, after formerVersion: Int64?) -> PendingDatafile? {
        pending.withLock { pending in
            guard let candidate = pending, candidate.sdkKey == stored.sdkKey, candidate.formerVersion == formerVersion
            else { return nil }
            switch (candidate.datafile, stored.body) {
            case (.edit(let parts, _), .parts(let others)) where parts == others: break
            case (.edit(_, let change), .change(let other)) where change.hasSameParts(as: other): break
            case (.whole(let content), .whole(let other)) where content == other: break
            default: return nil
            }
            pending = nil
            return candidate
        }
    }

    /// Returns the project with a datafile that has just been stored, even if a newer one has been stored since.
    func project(_ stored: StoredDatafile, _ compiled: CompiledDefinitions) -> Project {
        if let project = snapshot().projects[stored.sdkKey], project.version == stored.version { return project }
        return Project(stored, compiled, isStoredHere: true)
    }

    // MARK: Activation

    /// Replaces the snapshot by one with a state of the store, and notifies all observers.
    private func activate(_ state: ProjectState) {
        var next = snapshot()
        next.changes = state.changes
        next.schema = state.schema
        next.records = state.projects
        next.version = state.newestDatafile
        next.generation = state.generation
        next.formerEpochs = state.formerEpochs
        let keys = Set(state.projects.map(\.sdkKey))
        next.projects = next.projects.filter { keys.contains($0.key) }
        next.parts = next.parts.filter { keys.contains($0.key) }
        let forced = Dictionary(grouping: state.forcedVariations, by: \.sdkKey)
        for stored in state.datafiles { add(stored, to: &next) }
        // All projects are created anew, because each keeps the schema and the version of the catalog.
        next.projects = next.projects.mapValues { [next] project in
            Project(
                project, forced: forced[project.sdkKey] ?? [], schema: next.schema, catalogVersion: next.version,
                isSuperseded: next.superseded.contains(project.sdkKey))
        }
        let datafiles = next.projects.values.map(\.datafile)
        rules.archived.set(Self.archived(in: datafiles))
        rules.lifetimes.set(Self.lifetimes(in: datafiles, default: rules.assignmentTTL))
        next.defaultProject = next.records.first(where: \.isDefault).flatMap { next.projects[$0.sdkKey] }
        current.withLock { [next] in $0 = next }
        generation.add(1, ordering: .releasing)
        for changed in observers.withLock({ $0 }) { changed() }
    }

    /// Adds the newest datafile of a project. If this server cannot use it, the former one stays.
    private func add(_ stored: StoredDatafile, to next: inout Snapshot) {
        var stored = stored
        let sdkKey = stored.sdkKey
        let pending = takePending(stored, after: next.projects[sdkKey]?.version)
        // The store may return only what an edit has changed. Applied to the former parts, the change gives all parts,
        // with the versions of the elements.
        if let parts = stored.body.parts(after: next.parts[sdkKey]) { stored.body = .parts(parts) }
        next.parts[sdkKey] = stored.body.parts(after: nil)
        do throws(CoreError) {
            next.projects[sdkKey] =
                if let pending {
                    Project(stored, pending.compiled, isStoredHere: true)
                } else {
                    try Project(stored, similarTo: next.projects[sdkKey])
                }
            next.superseded.remove(sdkKey)
        } catch {
            // For example, a newer release has stored the datafile.
            next.superseded.insert(sdkKey)
            logger.error(
                "a stored datafile is not usable; the former one stays active",
                metadata: ["sdk_key": "\(sdkKey)", "error": "\(error.detail)"])
        }
    }

    /// Returns the ids of the experiments that are archived in every project that has them.
    private static func archived(in datafiles: [Datafile]) -> Set<Identifier> {
        var archived: Set<Identifier> = []
        for datafile in datafiles {
            for experiment in datafile.experiments where experiment.isArchived { archived.insert(experiment.id) }
        }
        return archived.filter { id in
            datafiles.allSatisfy { $0.experiment(id: id)?.isArchived ?? true }
        }
    }

    /// Returns the assignment lifetimes of the experiments for which a definition sets one, by experiment id; `nil`
    /// means forever. If projects share an experiment, the longest lifetime counts.
    ///
    /// - Parameter defaultLifetime: the lifetime for projects that define none.
    private static func lifetimes(
        in datafiles: [Datafile], default defaultLifetime: TimeSpan?
    ) -> [Identifier: TimeSpan?] {
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
                let lifetime = datafile.assignmentLifetime(of: experiment).map(\.span) ?? defaultLifetime
                let longest =
                    if let other = lifetimes[experiment.id] {
                        longer(lifetime, other)
                    } else {
                        lifetime
                    }
                lifetimes.updateValue(longest, forKey: experiment.id)
            }
        }
        return lifetimes
    }

    /// Returns the longer of two lifetimes; `nil` means forever.
    private static func longer(_ lifetime: TimeSpan?, _ other: TimeSpan?) -> TimeSpan? {
        guard let lifetime, let other else { return nil }
        return max(lifetime, other)
    }
}
