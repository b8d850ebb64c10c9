import Bucketing
import Dispatch
public import Storage
import Synchronization

/// Stores everything in a PostgreSQL database, which any number of servers on any number of hosts may share.
///
/// Each ``PostgreSQLSession`` has connections of its own, which its executor drives. Users are not cached, so that
/// every server reads each change that any server has acknowledged. This class has the state that all sessions share:
/// limits, metrics, the health of reads and writes, the clock, and the ``Maintenance``.
public final class PostgreSQLStore: Store {
    private struct State {
        /// The metrics that this process counts.
        var metrics = StoreMetrics()
        var reads = Health()
        var writes = Health()
        /// By how much this process has changed the numbers of profiles and assignments since they were last counted.
        var profiles: Int64 = 0
        var assignments: Int64 = 0
        /// The numbers of profiles and assignments when they were last counted.
        var counted = (profiles: Int64(0), assignments: Int64(0))
    }

    let configuration: PostgreSQLConfiguration
    var settings: StoreSettings { configuration.settings }
    public var rules: ProfileRules { settings.rules }
    public var clock: StoreClock { time.clock }
    /// The clock of the database server.
    let time: ServerTime
    /// Opens the connections of all sessions.
    let connector: Connector
    private let state = Mutex(State())
    /// Whether the store is closed.
    private let closed = Atomic<Bool>(false)
    /// Entered for each change that waits or is in progress.
    private let pending = DispatchGroup()
    /// The number of changes of all sessions that wait or are in progress.
    private let waitingChanges = Atomic<Int>(0)
    /// The estimated memory that these changes take, in bytes.
    private let waitingBytes = Atomic<Int>(0)
    /// Whether lookups count as failing. Only then must a success be noted under the lock.
    private let readsAreFailing = Atomic<Bool>(false)
    private let failedLookups = Atomic<Int>(0)
    private let slowLookups = Atomic<Int>(0)
    /// The number of changes that were applied again after a conflict.
    private let conflicts = Atomic<Int>(0)
    /// Asks the servers for their roles at intervals.
    private let watch: ClusterWatch
    /// The duration in nanoseconds beyond which lookups count as slow.
    private static let slowNanoseconds: UInt64 = 100_000_000
    /// The background work; `nil` before the store is open, and once it is closed.
    private let maintenance = Mutex<Maintenance?>(nil)
    /// See ``knownSeries``.
    private let series = Mutex<VersionedSeries?>(nil)
    /// The listeners that were made, which are cancelled when the store is closed.
    private let listeners = Mutex<[ChangeListener]>([])
    /// A random number that identifies this process's store among the servers of the database.
    let server = Int64.random(in: .min ... .max)
    /// Whether the users' rows are distributed over the nodes of a Citus cluster.
    let isDistributed: Bool
    /// Whether changes are kept for readers of the feed.
    let hasFeed: Bool
    /// How long a transaction of many changes waits for a lock, in seconds.
    ///
    /// Without Citus the wait is short; then the changes whose rows are locked get transactions of their own. Citus
    /// locks whole shards for some statements, so these changes cannot be found, and all must wait.
    var lockPatience: Double { isDistributed ? configuration.statementTimeout : configuration.lockPatience }
    /// The row of the table `probes` that this server writes. There are several rows, so that the probes of several
    /// servers seldom wait for each other.
    private let probeSlot = Int64.random(in: 0..<16)
    /// The number of rows that one step of a scan reads.
    private static let scanRows = 512

    var readingContext: ReadingContext {
        ReadingContext(
            .postgreSQL, settings, clock, scanRows: Self.scanRows, longestTransaction: configuration.statementTimeout)
    }

    /// Opens the database; creates or migrates it if needed. Blocks until done.
    ///
    /// - Throws: ``DatabaseError`` if the database cannot be reached, is of a newer release, lacks rights for the role,
    ///   or is the target of an incomplete copy.
    public init(_ configuration: PostgreSQLConfiguration) throws(DatabaseError) {
        self.configuration = configuration
        connector = Connector(configuration)
        time = ServerTime(configuration.settings)
        watch = ClusterWatch(configuration)
        watch.waitForFirst()
        do throws(PostgreSQLError) {
            let handle = try Connector.open(configuration)
            try Self.prepare(handle, isReadOnly: configuration.settings.isReadOnly)
            isDistributed = try Schema.isDistributed(handle)
            hasFeed = try FeedRows.open(
                configuration.settings.isReadOnly ? .asStored : configuration.settings.feed, handle)
            try time.read(handle)
            do throws(PostgreSQLError) {
                let counted = try ProfileCount.read(handle, isDistributed: isDistributed)
                state.withLock { $0.counted = counted }
            } catch {
                // An unreachable node fails only its own users, so the store opens without the numbers. They are
                // counted later.
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

    /// Creates or migrates the tables, and checks that a server may use them.
    private static func prepare(_ handle: Handle, isReadOnly: Bool) throws(PostgreSQLError) {
        if isReadOnly {
            try Schema.expectCurrent(handle)
        } else {
            _ = try Schema.migrate(handle, distributes: false)
            try Schema.expectRights(handle)
        }
        try CopyState.expectFinished(handle, removesMark: !isReadOnly)
    }

    /// Creates the tables or migrates them to this release's version, and distributes the large ones if the database
    /// has the extension `citus`. Blocks until done.
    ///
    /// - Returns: the version before and after.
    /// - Throws: ``DatabaseError`` if the database cannot be reached, is of a newer release, or cannot be migrated.
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

    public func probe() async throws(StorageError) {
        guard let maintenance = maintenance.withLock({ $0 }), !isClosed else { throw .closed }
        try await maintenance.probe { session throws(StorageError) in try await session.probe(slot: self.probeSlot) }
    }

    public func probeReads() async throws(StorageError) {
        guard let maintenance = maintenance.withLock({ $0 }), !isClosed else { throw .closed }
        try await maintenance.probe { session throws(StorageError) in try await session.probeReads() }
    }

    /// - Returns: `nil` behind a pooler, because other clients share its sessions.
    public func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)? {
        guard !configuration.usesPooler, !isClosed else { return nil }
        let listener = ChangeListener(configuration, changed)
        listeners.withLock { $0.append(listener) }
        return listener
    }

    public var readFailure: StorageError? { state.withLock(\.reads.failure) }
    public var writeFailure: StorageError? { state.withLock(\.writes.failure) }

    public func metrics() -> StoreMetrics {
        state.withLock { state in
            var metrics = state.metrics
            metrics.profiles = Int(max(0, state.counted.profiles + state.profiles))
            metrics.assignments = Int(max(0, state.counted.assignments + state.assignments))
            metrics.waitingChanges = waitingChanges.load(ordering: .relaxed)
            metrics.waitingBytes = waitingBytes.load(ordering: .relaxed)
            metrics.own = ownMetrics
            return metrics
        }
    }

    private var ownMetrics: [StoreMetric] {
        func metric(_ name: String, _ kind: StoreMetric.Kind, _ help: String, _ value: Int) -> StoreMetric {
            StoreMetric(name, kind, help, UInt64(clamping: value))
        }
        let cluster = configuration.cluster
        return [
            metric(
                "holdfast_store_failed_lookups_total", .counter, "Lookups that the database did not answer.",
                failedLookups.load(ordering: .relaxed)),
            metric(
                "holdfast_store_slow_lookups_total", .counter, "Lookups that took longer than 100 ms.",
                slowLookups.load(ordering: .relaxed)),
            metric(
                "holdfast_store_conflicts_total", .counter,
                "Changes that were applied again because another server had changed the same data.",
                conflicts.load(ordering: .relaxed)),
            metric(
                "holdfast_store_reconnects_total", .counter, "Connections made in place of lost ones.",
                cluster.reconnects),
            metric(
                "holdfast_store_parked_connections", .gauge,
                "Connections whose last commit has not been confirmed in time.", cluster.parkedConnections),
        ]
    }

    public func close() {
        closed.store(true, ordering: .sequentiallyConsistent)
        for listener in listeners.withLock({ $0 }) { listener.cancel() }
        watch.cancel()
        // Changes have a deadline, but a stopped executor never completes them, so the wait has a time-out.
        pending.wait(before: .now() + settings.waitingSeconds + 2 * configuration.statementTimeout)
        let maintenance = maintenance.withLock { maintenance in
            defer { maintenance = nil }
            return maintenance
        }
        maintenance?.close()
    }

    // MARK: For sessions

    var isClosed: Bool { closed.load(ordering: .relaxed) }

    /// Admits changes to the queues of sessions; each admission requires a later call of ``release(_:_:)``.
    ///
    /// - Returns: why the changes are refused; `nil` if they are admitted.
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

    /// Releases the room of admitted changes, which are durable or have failed.
    func release(_ changes: Int, _ bytes: Int) {
        waitingChanges.subtract(changes, ordering: .relaxed)
        waitingBytes.subtract(bytes, ordering: .relaxed)
        pending.leave()
    }

    func countRefusedChanges(_ changes: Int) {
        state.withLock { $0.metrics.refusedChanges += UInt64(changes) }
    }

    func countFailedChanges(_ changes: Int) {
        state.withLock { $0.metrics.failedChanges += UInt64(changes) }
    }

    /// Counts a committed transaction, and notes that writes work.
    func countCommit(_ transaction: CommittedTransaction) {
        let hasRecovered = state.withLock { state in
            state.metrics.commits += 1
            state.metrics.changes += UInt64(transaction.changes)
            state.metrics.commitSeconds.observe(transaction.seconds)
            state.metrics.batchSizes.observe(Double(transaction.changes))
            state.metrics.auditEntries += UInt64(transaction.auditEntries)
            state.profiles += transaction.profiles
            state.assignments += transaction.assignments
            return state.writes.succeeded(at: now)
        }
        if hasRecovered { configuration.report(nil) }
    }

    /// Notes that a probe has read and written. A server that is not ready gets no requests, so only probes can show
    /// that its lookups and changes work again.
    func didProbe() {
        readsWork()
        if state.withLock({ $0.writes.succeeded(at: now) }) { configuration.report(nil) }
    }

    /// Notes that a transaction has failed for a reason that may concern other changes, too.
    func writesFail(_ error: StorageError) {
        if state.withLock({ $0.writes.failed(error, at: now) }) { configuration.report(error.description) }
    }

    // MARK: Lookups

    /// Notes that lookups work. Cheap unless lookups count as failing.
    func readsWork() {
        guard readsAreFailing.load(ordering: .relaxed) else { return }
        let hasRecovered = state.withLock { state in
            let hasRecovered = state.reads.succeeded(at: now)
            if hasRecovered { readsAreFailing.store(false, ordering: .relaxed) }
            return hasRecovered
        }
        if hasRecovered { configuration.reportReads(nil) }
    }

    /// Notes that lookups fail, and reports it if they worked before.
    func readsFail(_ error: StorageError) {
        let isFirst = state.withLock { state in
            readsAreFailing.store(true, ordering: .relaxed)
            return state.reads.failed(error, at: now)
        }
        if isFirst { configuration.reportReads(error.description) }
    }

    /// Counts failed lookups.
    ///
    /// - Parameter error: the cause; `nil` if the cause does not concern other lookups.
    func lookupsFailed(_ count: Int, _ error: StorageError?) {
        failedLookups.add(count, ordering: .relaxed)
        if let error { readsFail(error) }
    }

    /// Counts lookups if they were slow.
    func countLookups(_ count: Int, nanoseconds: UInt64) {
        if nanoseconds > Self.slowNanoseconds { slowLookups.add(count, ordering: .relaxed) }
    }

    /// Counts changes that are applied again after another server has changed what they read.
    func countConflicts(_ changes: Int) {
        if changes > 0 { conflicts.add(changes, ordering: .relaxed) }
    }

    private var now: UInt64 { DispatchTime.now().uptimeNanoseconds }

    /// Sets the metrics of the feed.
    func setFeedMetrics(_ feed: FeedMetrics) {
        state.withLock { $0.metrics.feed = feed }
    }

    func countDeleted(expiredAssignments: Int, auditEntries: Int) {
        state.withLock { state in
            state.metrics.expiredAssignments += UInt64(expiredAssignments)
            state.metrics.deletedAuditEntries += UInt64(auditEntries)
        }
    }

    /// The series as this process last read them. They may be outdated; a transaction that depends on outdated series
    /// is repeated.
    var knownSeries: VersionedSeries? { series.withLock { $0 } }

    /// Keeps series that were just read.
    func keepSeries(_ found: VersionedSeries) -> VersionedSeries {
        series.withLock { $0 = found }
        return found
    }

    /// Makes the next transaction that needs series read them again.
    func forgetSeries() {
        series.withLock { $0 = nil }
    }

    /// Sets the numbers of profiles and assignments that all servers have stored.
    func setCounts(profiles: Int64, assignments: Int64) {
        state.withLock { state in
            state.counted = (profiles, assignments)
            state.profiles = 0
            state.assignments = 0
        }
    }
}

/// The numbers that the metrics need of a committed transaction.
struct CommittedTransaction {
    /// The number of changes, without refused ones.
    var changes = 0
    /// The duration of the transaction, in seconds.
    var seconds = 0.0
    /// The number of new audit entries.
    var auditEntries = 0
    /// By how much the number of profiles changes.
    var profiles: Int64 = 0
    /// By how much the number of assignments changes.
    var assignments: Int64 = 0
}

extension DatabaseError {
    init(_ url: String, _ error: PostgreSQLError) {
        self.init(
            url, reason: error.state.isEmpty ? error.message : error.description,
            // Tables of another release, a role without rights and a malformed string do not change by waiting.
            isPermanent: [PostgreSQLError.unsupported, PostgreSQLError.insufficientPrivilege].contains(error.state)
                || !ConnectionString(url).isWellFormed)
    }

    init(_ url: String, reason: String, isPermanent: Bool = false) {
        self.init(ConnectionString(url).withoutSecrets, reason, isPermanent: isPermanent)
    }
}
