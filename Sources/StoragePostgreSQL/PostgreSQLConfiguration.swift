public import Storage
import Synchronization

/// The configuration of a PostgreSQL store.
public struct PostgreSQLConfiguration: Sendable {
    /// A connection string of libpq: `postgresql://…`, also with several hosts and `target_session_attrs=read-write`.
    public var url: String
    public var settings: StoreSettings
    /// Whether connections go through a pooler in transaction mode, such as PgBouncer. Then statements are not prepared
    /// by name, and sessions have no settings. A pooler that is not configured here is detected; see
    /// ``PoolerDetection``.
    public var isPooled = false
    /// Detects a pooler; shared by the copies of a configuration.
    let pooler = PoolerDetection()
    /// The state of the servers; shared by the copies of a configuration.
    let cluster = Cluster()
    /// The number of connections of a session, at least 1. With 2 connections, lookups go on during a commit. With
    /// more, changes of other users go on, too.
    public var connectionsPerSession = 2
    /// How long the database may take for a request before the request fails, in seconds.
    public var statementTimeout = 10.0
    /// How long a transaction of many changes waits for a lock, in seconds. After that, the changes of users with
    /// locked rows get transactions of their own.
    var lockPatience: Double { min(0.25, statementTimeout / 4) }
    /// The interval at which the servers of ``url`` are asked for their roles, in seconds; see ``ClusterWatch``.
    var watchInterval = 1.0
    /// The maximum number of changes in one transaction.
    public var batchLimit = 512
    /// Called on any thread when writes begin to fail, with the reason, and with `nil` when they succeed again.
    public var report: @Sendable (_ failure: String?) -> Void = { _ in }
    /// Called on any thread when lookups begin to fail, with the reason, and with `nil` when they succeed again.
    public var reportReads: @Sendable (_ failure: String?) -> Void = { _ in }
    /// Called on any thread, once, when a pooler is detected although ``isPooled`` is `false`.
    public var reportPooler: @Sendable () -> Void = {}

    /// Returns a time-out in milliseconds, as PostgreSQL takes it: at least 1, because 0 would mean no time-out, and at
    /// most 2e9, which fits into PostgreSQL's 32-bit settings.
    static func milliseconds(_ seconds: Double) -> Int { Int(max(1, min(seconds * 1_000, 2e9))) }

    /// Whether connections go through a pooler, as far as is known.
    var usesPooler: Bool { isPooled || pooler.hasFound }

    public init(url: String, _ settings: StoreSettings = StoreSettings()) {
        self.url = url
        self.settings = settings
    }
}

/// Detects a pooler that nobody configured. The clients of a pooler share the sessions of the server, so the prepared
/// statements of one client may appear in, or vanish from, the session of another.
///
/// A pooler in transaction mode gives its clients another process id than that of the backend that serves them; see
/// ``Handle/inspect(_:within:)``. A pooler that hides the difference is detected at the first error of a prepared
/// statement.
final class PoolerDetection: Sendable {
    private let found = Atomic<Bool>(false)

    var hasFound: Bool { found.load(ordering: .relaxed) }

    /// Notes that there is a pooler.
    ///
    /// - Returns: whether the pooler had not been detected before.
    func didFind() -> Bool {
        !found.exchange(true, ordering: .relaxed)
    }

    /// The SQLSTATEs of a prepared statement that exists already, and of a prepared statement that does not exist.
    static let states = ["42P05", "26000"]
}

extension PostgreSQLConfiguration {
    /// Notes and reports a pooler, unless it is configured or was reported before.
    func foundPooler() {
        if !isPooled, pooler.didFind() { reportPooler() }
    }
}
