public import Storage

/// What a SQLite store can be told.
public struct SQLiteConfiguration: Sendable {
    /// The database file.
    public var path: String
    public var rules = ProfileRules()
    /// Seconds that a write waits for another process that holds the database.
    public var lockTimeout = 2.0
    /// Seconds that a read waits; it blocks an event loop, and needs a lock in rare moments only.
    public var readLockTimeout = 0.2
    /// Changes that may wait for their commit; beyond it they are refused.
    public var waitingChanges = 10_000
    /// Seconds that the oldest of them may have waited; beyond it further changes are refused.
    public var waitingSeconds = 5.0
    /// Changes of one transaction.
    public var batchLimit = 1_024
    /// Pages of 1 KiB in the write-ahead log at which it is copied into the database.
    public var checkpointPages = 16_384
    /// Bytes of cached profiles for each reader.
    public var cacheBytes = 32 << 20
    /// Whether what has expired or is old is deleted in the background, by what is said below.
    public var deletesOld = true
    /// Seconds between two looks for what is to be deleted.
    public var retentionInterval = 5.0
    /// Expired profiles, and old entries of the audit log, that one transaction deletes.
    public var retentionBatch = 500
    /// How long an entry of the audit log is kept.
    public var auditRetention = Duration.seconds(400 * 86_400)
    /// Datafiles of one project that are kept, the one in force among them; at least 1.
    public var datafileHistory = 100
    /// Milliseconds that goal events are kept, at least ``EventRules/minimumRetention``; `nil`: forever.
    public var eventRetention: Timestamp?
    /// Seconds from one scan for all users to the next, at least; see ``KnownUsers``.
    var userScanPause = 60.0
    /// Users for whom it makes room, at least.
    var leastUserCapacity = 1 << 20
    public var clock: WallClock = systemWallClock
    /// Called on whatever thread.
    public var report: @Sendable (StoreEvent) -> Void = { _ in }
    /// Called with the work of calling the completions of one transaction, which it must do: so that those who are
    /// told much at once need be woken only once.
    public var aroundCompletions: @Sendable (() -> Void) -> Void = { $0() }

    public init(path: String) {
        self.path = path
    }
}
