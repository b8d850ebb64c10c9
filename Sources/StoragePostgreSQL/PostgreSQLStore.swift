import Bucketing
import Dispatch
public import Storage
import Synchronization

/// Stores everything in a PostgreSQL database, which any number of servers on any number of hosts may share.
///
/// Each session has its own connections, driven by its executor. Nothing is cached: every server reads what any server
/// has acknowledged.
public final class PostgreSQLStore: Store {
    private struct State {
        var metrics = StoreMetrics()
        var failure: StorageError?
        /// What this process has changed in the number of profiles and assignments since they were last counted.
        var profiles: Int64 = 0
        var assignments: Int64 = 0
        var counted = (profiles: Int64(0), assignments: Int64(0))
        var isClosed = false
    }

    let configuration: PostgreSQLConfiguration
    var settings: StoreSettings { configuration.settings }
    public var rules: ProfileRules { settings.rules }
    public var clock: StoreClock { time.clock }
    let time: ServerTime
    let connector: Connector
    private let state = Mutex(State())
    /// Checked by each operation.
    private let closed = Atomic<Bool>(false)
    /// Entered for each change that waits or is in progress.
    private let pending = DispatchGroup()
    private let waitingChanges = Atomic<Int>(0)
    private let waitingBytes = Atomic<Int>(0)
    private let maintenance = Mutex<Maintenance?>(nil)
    private let listeners = Mutex<[ChangeListener]>([])
    /// A random number of this process's store.
    let server = Int64.random(in: .min ... .max)
    /// Whether the users' rows are distributed over the nodes of a Citus cluster.
    let isDistributed: Bool
    private let probeSlot = Int64.random(in: 0..<16)

    /// Opens the database; creates or migrates it if needed. Blocks until done.
    ///
    /// - Throws: ``DatabaseError``
    public init(_ configuration: PostgreSQLConfiguration) throws(DatabaseError) {
        self.configuration = configuration
        connector = Connector(configuration)
        time = ServerTime(configuration.settings)
        do throws(PostgreSQLError) {
            let handle = try Connector.open(configuration)
            if configuration.settings.isReadOnly {
                try Schema.expectCurrent(handle)
            } else {
                _ = try Schema.migrate(handle, distributes: false)
            }
            try CopyState.expectFinished(handle, ends: !configuration.settings.isReadOnly)
            isDistributed = try Schema.isDistributed(handle)
            try time.read(handle)
            do throws(PostgreSQLError) {
                let counted = try ProfileCount.read(handle, isDistributed: isDistributed)
                state.withLock { $0.counted = counted }
            } catch {
                // An unreachable node fails only its own users.
                guard isDistributed, error.mayConcernOneNode else { throw error }
            }
        } catch {
            throw DatabaseError(configuration.url, error)
        }
        do throws(StorageError) {
            let maintenance = try Maintenance(self)
            self.maintenance.withLock { $0 = maintenance }
        } catch {
            throw DatabaseError(configuration.url, reason: "\(error)")
        }
    }

    /// Creates the tables or migrates them to this release's version, and distributes the large ones if the database
    /// has the extension `citus`. Blocks until done.
    ///
    /// - Returns: the version before and after.
    /// - Throws: ``DatabaseError``
    public static func migrate(
        _ configuration: PostgreSQLConfiguration
    ) throws(DatabaseError) -> (from: Int, to: Int) {
        do throws(PostgreSQLError) {
            return try Schema.migrate(try Connector.open(configuration), distributes: true)
        } catch {
            throw DatabaseError(configuration.url, error)
        }
    }

    public func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        guard !isClosed else { throw .closed }
        return PostgreSQLSession(self, on: executor)
    }

    public func probe(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        guard let maintenance = maintenance.withLock({ $0 }), !isClosed else { return completion(.failure(.closed)) }
        maintenance.run { [probeSlot] session in session.probe(slot: probeSlot, completion) }
    }

    /// - Returns: `nil` behind a pooler, because other clients share its sessions.
    public func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)? {
        guard !configuration.usesPooler, !isClosed else { return nil }
        let listener = ChangeListener(configuration, changed)
        listeners.withLock { $0.append(listener) }
        return listener
    }

    public var writeFailure: StorageError? { state.withLock(\.failure) }

    public func metrics() -> StoreMetrics {
        state.withLock { state in
            var metrics = state.metrics
            metrics.profiles = Int(max(0, state.counted.profiles + state.profiles))
            metrics.assignments = Int(max(0, state.counted.assignments + state.assignments))
            metrics.waitingChanges = waitingChanges.load(ordering: .relaxed)
            metrics.waitingBytes = waitingBytes.load(ordering: .relaxed)
            return metrics
        }
    }

    public func close() {
        closed.store(true, ordering: .sequentiallyConsistent)
        for listener in listeners.withLock({ $0 }) { listener.cancel() }
        // With a time-out: changes have a deadline, but a stopped executor never completes them.
        _ = pending.wait(timeout: .now() + settings.waitingSeconds + 2 * configuration.statementTimeout)
        let maintenance = maintenance.withLock { maintenance in
            defer { maintenance = nil }
            return maintenance
        }
        maintenance?.close()
    }

    // MARK: For sessions

    var isClosed: Bool { closed.load(ordering: .relaxed) }

    /// Admits changes; each admission requires a later call of ``settled(_:_:)``.
    ///
    /// - Returns: why they are refused; `nil` if they are admitted.
    func admit(_ changes: Int, _ bytes: Int) -> StorageError? {
        pending.enter()
        guard !closed.load(ordering: .sequentiallyConsistent) else {
            pending.leave()
            return .closed
        }
        waitingChanges.add(changes, ordering: .relaxed)
        waitingBytes.add(bytes, ordering: .relaxed)
        return nil
    }

    func settled(_ changes: Int, _ bytes: Int) {
        waitingChanges.subtract(changes, ordering: .relaxed)
        waitingBytes.subtract(bytes, ordering: .relaxed)
        pending.leave()
    }

    func refused(_ changes: Int) {
        state.withLock { $0.metrics.refusedChanges += UInt64(changes) }
    }

    func failed(_ changes: Int) {
        state.withLock { $0.metrics.failedChanges += UInt64(changes) }
    }

    func committed(_ transaction: CommittedTransaction) {
        let hasRecovered = state.withLock { state in
            state.metrics.commits += 1
            state.metrics.changes += UInt64(transaction.changes)
            state.metrics.commitSeconds.observe(transaction.seconds)
            state.metrics.batchSizes.observe(Double(transaction.changes))
            state.metrics.auditEntries += UInt64(transaction.auditEntries)
            state.profiles += transaction.profiles
            state.assignments += transaction.assignments
            defer { state.failure = nil }
            return state.failure != nil
        }
        if hasRecovered { configuration.report(nil) }
    }

    /// Notes that a probe was written, so the store works again.
    func didProbe() {
        let hasRecovered = state.withLock { state in
            defer { state.failure = nil }
            return state.failure != nil
        }
        if hasRecovered { configuration.report(nil) }
    }

    /// Notes that a transaction failed for a reason other than its own changes.
    func writesFail(_ error: StorageError) {
        let isFirst = state.withLock { state in
            defer { state.failure = error }
            return state.failure == nil
        }
        if isFirst { configuration.report(error.description) }
    }

    func countDeleted(expiredAssignments: Int, auditEntries: Int) {
        state.withLock { state in
            state.metrics.expiredAssignments += UInt64(expiredAssignments)
            state.metrics.deletedAuditEntries += UInt64(auditEntries)
        }
    }

    /// Sets the numbers of profiles and assignments that all servers have stored.
    func recounted(profiles: Int64, assignments: Int64) {
        state.withLock { state in
            state.counted = (profiles, assignments)
            (state.profiles, state.assignments) = (0, 0)
        }
    }
}

/// The configuration of a PostgreSQL store.
public struct PostgreSQLConfiguration: Sendable {
    /// A connection string of libpq: `postgresql://…`, also with several hosts and `target_session_attrs=read-write`.
    public var url: String
    public var settings: StoreSettings
    /// Whether connections go through a pooler in transaction mode: statements are not prepared by name, and sessions
    /// have no settings. A pooler that is not configured is noticed; see ``PoolerDetection``.
    public var isPooled = false
    /// Shared by the copies of a configuration.
    let pooler = PoolerDetection()
    /// The connections of a session, at least 1. With 2, lookups go on during a commit; with more, so do changes of
    /// other users.
    public var connectionsPerSession = 2
    /// How long an exchange with the server may take before its connection is closed, in seconds.
    public var statementTimeout = 10.0
    /// The maximum number of changes in one transaction.
    public var batchLimit = 512
    /// Called on any thread when writes begin to fail, with the reason, and with `nil` when they succeed again.
    public var report: @Sendable (_ failure: String?) -> Void = { _ in }
    /// Called on any thread, once, when a pooler is noticed that ``isPooled`` does not tell of.
    public var reportPooler: @Sendable () -> Void = {}

    /// Whether connections go through a pooler, as far as is known.
    var usesPooler: Bool { isPooled || pooler.hasFound }

    public init(url: String, _ settings: StoreSettings = StoreSettings()) {
        self.url = url
        self.settings = settings
    }
}

/// Notices a pooler that nobody configured. Its sessions are shared with other clients, so that prepared statements of one
/// appear in or vanish from another's.
///
/// A pooler in transaction mode tells its clients another process id than that of the backend that happens to serve them.
/// One that hides this is noticed at the first error of a prepared statement.
final class PoolerDetection: Sendable {
    private let found = Atomic<Bool>(false)

    var hasFound: Bool { found.load(ordering: .relaxed) }

    /// - Returns: whether it had not been noticed before.
    func didFind() -> Bool {
        !found.exchange(true, ordering: .relaxed)
    }

    /// SQLSTATE of a prepared statement that exists already, and of one that does not exist.
    static let states = ["42P05", "26000"]
}

extension PostgreSQLConfiguration {
    /// Notes a pooler.
    func foundPooler() {
        if !isPooled, pooler.didFind() { reportPooler() }
    }
}

/// What the metrics count of a committed transaction.
struct CommittedTransaction {
    var changes = 0
    var seconds = 0.0
    var auditEntries = 0
    /// By how much the numbers of profiles and assignments change.
    var profiles: Int64 = 0
    var assignments: Int64 = 0
}

extension DatabaseError {
    init(_ url: String, _ error: PostgreSQLError) {
        self.init(
            url, reason: error.state.isEmpty ? error.message : error.description,
            // Tables of another release, for example.
            isPermanent: error.state == PostgreSQLError.unsupported || !ConnectionString(url).isWellFormed)
    }

    init(_ url: String, reason: String, isPermanent: Bool = false) {
        self.init(ConnectionString(url).withoutSecrets, reason, isPermanent: isPermanent)
    }
}
