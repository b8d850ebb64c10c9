import Bucketing
import Chronology
import Dispatch
public import Storage
public import StorageSQLite
import Synchronization

/// The store of an edge: a copy of its upstream's users and definitions in a SQLite file, which only the upstream's
/// feed changes. Decisions for enrolled users are made from the copy; the upstream enrolls users.
///
/// ```
///               decisions, lookups            first enrollments, saves       events
///                      │                               │                       │
///               EdgeSession ───────────────────────────┼───────────────────────┤
///                      │                           Enroller                EventOutbox ── OutboxSender
///                 SQLiteStore ◀── FeedApplier ◀── lines │                                      │
///                                      ▲                ▼                                      ▼
///        Follower, DefinitionsFollower ┴──────────── upstream: /edge/v1/… ◀────────────────────┘
/// ```
///
/// Only the upstream makes assignments, so neither synchronized clocks nor leases are needed: an edge may be late, but
/// it cannot give a user a second variation.
public final class EdgeStore: Store {
    let base: SQLiteStore
    let upstream: Upstream
    let applier: FeedApplier
    let enroller: Enroller
    let lookups: Lookups
    let outbox: EventOutbox
    let passage: EventPassage
    /// Passes on the requests that only the upstream can answer.
    public let pool: UpstreamPool
    private let follower: Follower
    private let definitions: DefinitionsFollower
    private let sender: OutboxSender

    /// Opens the SQLite file, and the outbox in a second file beside it.
    ///
    /// - Throws: `DatabaseError`
    public init(_ configuration: EdgeConfiguration, _ file: SQLiteConfiguration) throws(DatabaseError) {
        var file = file
        file.isEdge = true
        // The feed and the tallies are the upstream's.
        file.settings.feed = .off
        let path = file.path
        // Opened first, because it takes the lock against other processes.
        let wake = Wake()
        let outbox = try EventOutbox(
            path: path + "-outbox", entries: configuration.outboxEntries, bytes: configuration.outboxBytes
        ) { wake.call() }
        if let damaged = try EdgeState.setAsideDamaged(path) {
            configuration.report(.copyWasDamaged(reason: damaged.reason, kept: damaged.name))
        }
        let identity = UpstreamIdentity(configuration, try EdgeState.stored(in: path))
        // An edge stores and reports all times by its upstream's clock.
        file.settings.clock = { identity.now() }
        file.settings.reportClock = { _ in }
        let base = try SQLiteStore(file)
        let upstream = Upstream(configuration, identity)
        do throws(StorageError) {
            applier = FeedApplier(base, identity, try base.edgeState(), report: configuration.report)
        } catch {
            throw DatabaseError(path, "\(error)")
        }
        self.base = base
        self.upstream = upstream
        self.outbox = outbox
        definitions = DefinitionsFollower(upstream, applier)
        enroller = Enroller(upstream, applier, definitions)
        lookups = Lookups(upstream)
        pool = UpstreamPool(upstream)
        let sender = OutboxSender(upstream, applier, outbox)
        self.sender = sender
        passage = EventPassage(upstream, sender)
        follower = Follower(upstream, applier) { sender.wake() }
        wake.target.withLock { $0 = { sender.wake() } }
        follower.start()
        definitions.start()
        sender.start()
    }

    /// Wakes the sender, which is created after the outbox.
    private final class Wake: Sendable {
        let target = Mutex<@Sendable () -> Void>({})

        func call() { target.withLock { $0 }() }
    }

    public var isCopy: Bool { true }
    public var rules: ProfileRules { base.rules }
    public var clock: StoreClock { base.clock }

    public func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        EdgeSession(self, try base.makeSession(on: executor), executor)
    }

    /// Whether the copy answers lookups without the upstream. It does if it is up to date, or if the upstream is away.
    var answersAlone: Bool {
        guard applier.isComplete, !(applier.lacksWrites && upstream.isUp) else { return false }
        return (applier.lag ?? .infinity) <= upstream.configuration.maxLag || !upstream.isUp
    }

    /// Waits until the copy has everything that the upstream had committed at the time of the call.
    public func catchUp() async throws(UpstreamError) {
        let result: Result<Void, UpstreamError> = await settled { [self] completion in
            DispatchQueue.global().async { [self] in
                let connection = upstream.makeConnection()
                do {
                    try applier.catchUp(to: nil, connection, upstream)
                    try definitions.catchUp(connection)
                    completion(.success(()))
                } catch {
                    completion(.failure(error as? UpstreamError ?? .malformed("\(error)")))
                }
            }
        }
        try result.get()
    }

    // MARK: Readiness

    public func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)? {
        base.watchProjects(changed)
    }

    public var readFailure: StorageError? {
        if applier.isComplete { return base.readFailure }
        guard applier.hasDefinitions, upstream.isUp, upstream.secondsSinceContact != nil else {
            let reason = upstream.failure.map { ": \($0)" } ?? ""
            return .unavailable(reason: "the copy must be complete, or the upstream respond; neither is so\(reason)")
        }
        return base.readFailure
    }

    /// Changes and events pass to an upstream that responds.
    public var writeFailure: StorageError? { isUpstreamUp ? nil : base.writeFailure }

    public var closeFailure: StorageError? { base.closeFailure }

    public func probe() async throws(StorageError) {
        let copy = await Result.of { () throws(StorageError) in try await base.probe() }
        let waiting = await Result.of { () throws(StorageError) in try await outbox.probe() }
        // A damaged outbox may have lost events that were acknowledged, even if the upstream is up.
        if case .failure(.damaged(let reason)) = waiting { throw .damaged(reason: reason) }
        if isUpstreamUp { return }
        try copy.get()
        try waiting.get()
    }

    public func probeReads() async throws(StorageError) { try await base.probeReads() }

    // MARK: Metrics

    /// The address of the upstream.
    public var upstreamURL: String { upstream.configuration.url }
    /// Whether the upstream responds.
    public var isUpstreamUp: Bool { upstream.isUp && upstream.secondsSinceContact != nil }
    /// Why the upstream is away, or another fault that an operator should repair; `nil` if there is none.
    public var failure: String? {
        upstream.failure
            ?? (applier.lacksWrites || base.writeFailure != nil
                ? "the copy cannot be written; changes and events pass to the upstream" : nil)
    }
    /// How far this host's clock is ahead of the upstream's time, in seconds.
    public var clockOffset: Double { (-upstream.identity.clockOffset).inSeconds }

    /// Uses another token from the next request on.
    public func replaceToken(_ secret: String?) { upstream.identity.replaceToken(secret) }
    /// Whether the copy has been complete, so that it can serve alone.
    public var isComplete: Bool { applier.isComplete }
    /// The seconds since the copy was last known to be up to date; `nil` if it has not been in this run.
    public var lag: Double? { applier.lag }
    /// The number of events that wait for the upstream.
    public var waitingEvents: Int { max(0, outbox.waiting.entries) }

    public func metrics() -> StoreMetrics {
        var metrics = base.metrics()
        metrics.own += [
            StoreMetric(
                "holdfast_edge_upstream_up", .gauge, "1 if the upstream responds.",
                isUpstreamUp ? 1 : 0),
            StoreMetric(
                "holdfast_edge_copy_complete", .gauge, "1 if the copy has been complete, so that it can serve alone.",
                isComplete ? 1 : 0),
            StoreMetric(
                "holdfast_edge_outbox_events", .gauge, "Events that wait on disk for the upstream.",
                UInt64(waitingEvents)),
            StoreMetric("holdfast_edge_outbox_bytes", .gauge, "Their size.", UInt64(max(0, outbox.waiting.bytes))),
            StoreMetric(
                "holdfast_edge_sent_events_total", .counter, "Events that the upstream has acknowledged.",
                sender.sent.value),
            StoreMetric(
                "holdfast_edge_refused_events_total", .counter, "Events that the upstream refused for good; dropped.",
                sender.refused.value),
            StoreMetric(
                "holdfast_edge_erased_events_total", .counter,
                "Events that the upstream has dropped, because their users were erased after they were accepted.",
                sender.erased.value),
            StoreMetric(
                "holdfast_edge_unassigned_exposures_total", .counter,
                "Exposures without a variation of users who have none at the upstream either; dropped.",
                sender.unassigned.value),
            StoreMetric(
                "holdfast_edge_clock_offset_seconds", .gauge,
                "How far this host's clock is ahead of the upstream's time; times are corrected by it.",
                seconds: clockOffset),
            StoreMetric(
                "holdfast_edge_changes_total", .counter, "First enrollments and saves that the upstream has decided.",
                enroller.decided.value),
            StoreMetric(
                "holdfast_edge_offline_changes_total", .counter,
                "First enrollments and saves that were not passed on, because the upstream was away.",
                enroller.offline.value),
            StoreMetric(
                "holdfast_edge_lookups_total", .counter, "Users that the upstream was asked for.",
                lookups.asked.value),
            StoreMetric(
                "holdfast_edge_forwarded_requests_total", .counter, "Requests that the upstream has answered.",
                pool.forwarded),
        ]
        if let lag {
            metrics.own.append(
                StoreMetric(
                    "holdfast_edge_lag_seconds", .gauge,
                    "How long ago the copy was known to have everything that the upstream has.", seconds: lag))
        }
        if let seconds = upstream.secondsSinceContact {
            metrics.own.append(
                StoreMetric(
                    "holdfast_edge_last_contact_seconds", .gauge, "How long ago the upstream has responded.",
                    seconds: seconds))
        }
        return metrics
    }

    // MARK: Closing

    public func close() {
        upstream.close()
        sender.wait()
        follower.wait()
        definitions.wait()
        enroller.wait()
        passage.wait()
        lookups.wait()
        pool.wait()
        outbox.close()
        base.close()
    }
}
