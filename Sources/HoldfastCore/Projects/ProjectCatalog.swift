public import Bucketing
import Dispatch
public import Logging
public import Storage
internal import Synchronization

/// The projects in force and the schema of attributes, kept in memory and up to date with what this and other processes store.
public final class ProjectCatalog: Sendable {
    public struct Snapshot: Sendable {
        public var projects: [String: Project] = [:]
        /// SDK keys whose active datafile cannot be used here.
        var superseded: Set<String> = []
        public var schema = AttributeSchema.empty
        /// The last datafile that was read from the store.
        public var version: Int64 = 0
        /// The store's change number when it was read; -1 before the first time.
        public var changes: Int64 = -1
    }

    public let store: any ProjectStore & AttributeStore
    public let logger: Logger
    private let current = Mutex(Snapshot())
    /// Rises with each new snapshot, so that event loops need the lock only then.
    private let generation = Atomic<UInt64>(1)
    private let observers = Mutex<[@Sendable () -> Void]>([])
    private let queue = DispatchQueue(label: "project-catalog", qos: .userInitiated)
    private let definitions = DispatchQueue(label: "definitions", qos: .userInitiated)

    /// How often the store is asked for changes by other processes.
    private static let interval = DispatchTimeInterval.milliseconds(250)

    /// - Throws: `StorageError` when the store cannot be read.
    public init(store: any ProjectStore & AttributeStore, logger: Logger) throws(StorageError) {
        self.store = store
        self.logger = logger
        try update()
        watch()
    }

    /// Looks for changes until the catalog is gone.
    private func watch() {
        queue.asyncAfter(deadline: .now() + Self.interval) { [weak self] in
            guard let self else { return }
            do throws(StorageError) {
                try update()
            } catch .closed {
                return
            } catch {
                // Decisions go on with what is known; readiness tells of the store.
            }
            watch()
        }
    }

    /// Takes over what has been stored, then calls back on a queue of the catalog.
    public func refresh(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        queue.async { [self] in
            do throws(StorageError) {
                try update()
                completion(.success(()))
            } catch {
                completion(.failure(error))
            }
        }
    }

    /// Checks and compiles what admins send, one thing after the other, while event loops go on.
    public func inBackground(_ work: @escaping @Sendable () -> Void) {
        definitions.async(execute: work)
    }

    /// Has a function called after each change, on a queue of the catalog, for as long as the catalog lives.
    public func observe(_ changed: @escaping @Sendable () -> Void) {
        observers.withLock { $0.append(changed) }
    }

    private func update() throws(StorageError) {
        let changes = try store.projectChanges()
        var next = snapshot()
        guard changes != next.changes else { return }
        next.changes = changes
        next.schema = try store.attributeSchema()
        let forced = Dictionary(grouping: try store.forcedVariations(), by: \.sdkKey)
        for stored in try store.datafiles(after: next.version) {
            next.version = max(next.version, stored.version)
            do throws(HoldfastError) {
                next.projects[stored.sdkKey] = try Project(stored)
                next.superseded.remove(stored.sdkKey)
            } catch {
                // Written by a newer release, say.
                next.superseded.insert(stored.sdkKey)
                logger.error(
                    "a stored datafile is not usable; the former stays in force",
                    metadata: ["sdk_key": "\(stored.sdkKey)", "error": "\(error.detail)"])
            }
        }
        next.projects = next.projects.mapValues { [next] project in
            Project(
                project, forced: forced[project.sdkKey] ?? [], schema: next.schema, catalogVersion: next.version,
                isSuperseded: next.superseded.contains(project.sdkKey))
        }
        current.withLock { [next] in $0 = next }
        generation.add(1, ordering: .releasing)
        for changed in observers.withLock({ $0 }) { changed() }
    }

    public func snapshot() -> Snapshot {
        current.withLock { $0 }
    }

    public var currentGeneration: UInt64 { generation.load(ordering: .acquiring) }
}

/// The catalog as one event loop sees it: without a lock, but for the moments after a change.
public final class ProjectView {
    private let catalog: ProjectCatalog
    private var generation: UInt64 = 0
    private var snapshot = ProjectCatalog.Snapshot()
    private var projects: [String: Project] { snapshot.projects }

    public init(_ catalog: ProjectCatalog) {
        self.catalog = catalog
    }

    /// The project of an SDK key as it is now.
    public func project(_ sdkKey: String) -> Project? {
        refresh()
        return projects[sdkKey]
    }

    /// Takes over what has been stored by any process, then calls back, on a thread of the catalog.
    public func update(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        catalog.refresh(completion)
    }

    /// The attributes and segments that are defined now.
    public var schema: AttributeSchema {
        refresh()
        return snapshot.schema
    }

    /// The SDK key of experiments that were made without naming a project.
    public static let defaultKey = "default"

    /// The project of the SDK key, or without one the only project there is, or else the one named `default`.
    ///
    /// - Throws: 404 when there is no such project, 400 when it must be named.
    public func project(named sdkKey: String?) throws(HoldfastError) -> Project {
        refresh()
        if let sdkKey {
            guard let project = projects[sdkKey] else {
                throw HoldfastError(.notFound, "no datafile has the SDK key '\(sdkKey)'")
            }
            return project
        }
        if let project = projects.count == 1 ? projects.first?.value : projects[Self.defaultKey] { return project }
        guard !projects.isEmpty else {
            throw HoldfastError(.notFound, "the server has no datafile and no experiment yet")
        }
        throw HoldfastError(.invalid, "the server has several projects; name one by its SDK key")
    }

    /// Whether a variation belongs to this experiment in the datafile of another project.
    func hasVariation(_ variationID: Identifier, ofExperiment experimentID: Identifier, besides sdkKey: String) -> Bool {
        refresh()
        return projects.values.contains { project in
            project.sdkKey != sdkKey
                && project.datafile.experiment(id: experimentID)?.variation(id: variationID) != nil
        }
    }

    /// The experiments of this key, of all projects.
    public func experiments(key: Identifier) -> [Experiment] {
        refresh()
        return projects.values.compactMap { $0.datafile.experiment(key: key) }
    }

    /// The experiments of this id, of all projects.
    public func experiments(id: Identifier) -> [Experiment] {
        refresh()
        return projects.values.compactMap { $0.datafile.experiment(id: id) }
    }

    private func refresh() {
        let current = catalog.currentGeneration
        guard current != generation else { return }
        generation = current
        snapshot = catalog.snapshot()
    }
}

@available(*, unavailable) extension ProjectView: Sendable {}
