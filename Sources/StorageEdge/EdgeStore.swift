import Bucketing
import Chronology
import Dispatch
public import Storage
public import StorageSQLite
import Synchronization

/// The store of an edge: a copy of the upstream's users and definitions in a SQLite file.
///
/// Only the upstream's feed changes the copy. The edge decides for enrolled users from the copy. New users are enrolled
/// by the upstream. Terms: the *feed* is the upstream's stream of changes of users; *definitions* are the data that all
/// users share, such as datafiles.
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
    /// The copy.
    let base: SQLiteStore
    /// The state of the upstream, which all parts of the edge share.
    let upstream: Upstream
    /// Writes the copy.
    let applier: FeedApplier
    /// Sends changes of profiles to the upstream.
    let enroller: Enroller
    /// Looks users up at the upstream.
    let lookups: Lookups
    /// The events that wait until the upstream has stored them.
    let outbox: EventOutbox
    /// Sends the entries of the outbox.
    let sender: OutboxSender
    /// Sends events that the outbox cannot take.
    let directSender: DirectEventSender
    /// Passes on the requests that only the upstream can answer.
    public let pool: UpstreamPool
    private let follower: Follower
    private let definitions: DefinitionsFollower

    /// Opens the SQLite file, and the outbox in a second file beside it.
    ///
    /// - Throws: `DatabaseError`
    public init(_ configuration: EdgeConfiguration, _ file: SQLiteConfiguration) throws(DatabaseError) {
        var file = file
        file.isEdge = true
        // An edge keeps no feed of its own, because the readers of a feed follow the upstream's feed.
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
        // An edge stores and reports all times by its upstream's clock. Each response may correct this clock, so steps
        // of the clock are not reported. ``UpstreamIdentity`` reports a host's clock that is far off.
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
        directSender = DirectEventSender(upstream, sender)
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

    /// Whether the edge answers lookups alone, from the copy, without asking the upstream. It does if the copy is
    /// complete, and is either current or all that there is, because the upstream is away.
    var answersAlone: Bool {
        guard applier.isComplete else { return false }
        guard upstream.isUp else { return true }
        let isCurrent = (applier.lag ?? .infinity) <= upstream.configuration.maxLag
        return isCurrent && !applier.lacksWrites
    }

    /// Waits until the copy has everything that the upstream had committed at the time of the call.
    ///
    /// - Throws: ``UpstreamError`` if the upstream does not respond, or if the copy cannot be written.
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

    /// Uses another token from the next request on.
    public func replaceToken(_ secret: String?) { upstream.identity.replaceToken(secret) }

    // MARK: Readiness

    public func watchProjects(_ changed: @escaping @Sendable () -> Void) -> (any ProjectWatch)? {
        base.watchProjects(changed)
    }

    public var readFailure: StorageError? {
        if applier.isComplete { return base.readFailure }
        // While the copy is incomplete, lookups need the upstream.
        guard applier.hasDefinitions, isUpstreamUp else {
            let reason = upstream.failure.map { ": \($0)" } ?? ""
            return .unavailable(reason: "the copy must be complete, or the upstream respond; neither is so\(reason)")
        }
        return base.readFailure
    }

    /// Why changes and events fail. While the upstream responds they do not depend on the copy's file, because the
    /// upstream makes changes, and takes the events that the outbox cannot.
    public var writeFailure: StorageError? { isUpstreamUp ? nil : base.writeFailure }

    public var closeFailure: StorageError? { base.closeFailure }

    public func probe() async throws(StorageError) {
        let copyProbe = await Result.of { () throws(StorageError) in try await base.probe() }
        let outboxProbe = await Result.of { () throws(StorageError) in try await outbox.probe() }
        // A damaged outbox may have lost acknowledged events, so it is reported even if the upstream is up.
        if case .failure(.damaged(let reason)) = outboxProbe { throw .damaged(reason: reason) }
        if isUpstreamUp { return }
        try copyProbe.get()
        try outboxProbe.get()
    }

    public func probeReads() async throws(StorageError) { try await base.probeReads() }

    // MARK: Closing

    /// Ends all requests and threads, and then closes the files that they use.
    public func close() {
        upstream.close()
        sender.wait()
        follower.wait()
        definitions.wait()
        enroller.wait()
        directSender.wait()
        lookups.wait()
        pool.wait()
        outbox.close()
        base.close()
    }
}
