public import Storage
import Synchronization

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
    /// Shared by the copies of a configuration.
    let cluster = Cluster()
    /// The connections of a session, at least 1. With 2, lookups go on during a commit; with more, so do changes of
    /// other users.
    public var connectionsPerSession = 2
    /// How long the database may take for a request before that fails, in seconds.
    public var statementTimeout = 10.0
    /// How long the rows of a transaction of many changes may be locked by others, in seconds. Then a change that still
    /// waits for a lock gets a transaction of its own.
    var lockPatience: Double { min(0.25, statementTimeout / 4) }
    /// How often the servers of ``url`` are asked what they are, in seconds; see ``ClusterWatch``.
    var watchInterval = 1.0
    /// The maximum number of changes in one transaction.
    public var batchLimit = 512
    /// Called on any thread when writes begin to fail, with the reason, and with `nil` when they succeed again.
    public var report: @Sendable (_ failure: String?) -> Void = { _ in }
    /// The same of lookups.
    public var reportReads: @Sendable (_ failure: String?) -> Void = { _ in }
    /// Called on any thread, once, when a pooler is noticed that ``isPooled`` does not tell of.
    public var reportPooler: @Sendable () -> Void = {}

    static func milliseconds(_ seconds: Double) -> Int { Int(max(1, min(seconds * 1_000, 2e9))) }

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
