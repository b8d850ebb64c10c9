import Bucketing

/// Wraps a store and fails each change with ``StorageError/readOnly``. A server uses it while the content of its store
/// is copied to another store.
public final class ReadOnlyStore: Store {
    private let base: any Store
    /// The session that ``probe()`` reads with.
    private let probing: BackgroundSession

    /// - Throws: ``StorageError/unavailable(reason:)``, ``StorageError/closed``
    public init(_ base: any Store) throws(StorageError) {
        self.base = base
        probing = try BackgroundSession(base, label: "read-only-probe")
    }

    public func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        ReadOnlySession(try base.makeSession(on: executor))
    }

    /// Probes with a read instead of a write, because the database must not change.
    public func probe() async throws(StorageError) {
        try await probing.run { session throws(StorageError) in
            _ = try await session.read(.datafileHistory(sdkKey: "", limit: 1))
        }
    }

    public func probeReads() async throws(StorageError) { try await base.probeReads() }

    public var readFailure: StorageError? { base.readFailure }

    public var closeFailure: StorageError? { base.closeFailure }

    public var rules: ProfileRules { base.rules }

    public var clock: StoreClock { base.clock }

    public func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)? {
        base.watchProjects(changed)
    }

    public func metrics() -> StoreMetrics { base.metrics() }

    public func close() {
        probing.close()
        base.close()
    }
}

private final class ReadOnlySession: StoreSession {
    private let base: any StoreSession

    init(_ base: sending any StoreSession) {
        self.base = base
    }

    func prepareLookups() throws(StorageError) { try base.prepareLookups() }
    func beginBatch() { base.beginBatch() }
    func endBatch() { base.endBatch() }
    var cacheMetrics: CacheMetrics { base.cacheMetrics }
    var projectNotices: UInt64 { base.projectNotices }
    func close() { base.close() }

    func profile(of userID: Identifier, _ completion: @escaping Completion<ProfileRecord?>) {
        base.profile(of: userID, completion)
    }

    func attributes(of userID: Identifier, _ completion: @escaping Completion<AttributeRecord?>) {
        base.attributes(of: userID, completion)
    }

    func read<Value>(_ query: StoreQuery<Value>, _ completion: @escaping Completion<Value>) {
        base.read(query, completion)
    }

    func submit(
        _ change: ProfileChange, by author: Author?, _ completion: @escaping Completion<ProfileChangeResult>
    ) {
        completion(.failure(.readOnly))
    }

    func submit(
        _ changes: [ProfileChange], by author: Author?,
        _ completion: @escaping ([Result<ProfileChangeResult, StorageError>]) -> Void
    ) {
        completion(changes.map { _ in .failure(.readOnly) })
    }

    /// An empty list of events succeeds, because there is nothing to store.
    func record(_ events: [ReceivedEvent], _ completion: @escaping Completion<[EventOutcome]>) {
        completion(events.isEmpty ? .success([]) : .failure(.readOnly))
    }

    func write<Value>(
        _ changes: [UserChange<Value>], _ completion: @escaping ([Result<Value, StorageError>]) -> Void
    ) {
        completion(changes.map { _ in .failure(.readOnly) })
    }

    func write<Value>(_ change: SharedChange<Value>, _ completion: @escaping Completion<Value>) {
        completion(.failure(.readOnly))
    }
}
