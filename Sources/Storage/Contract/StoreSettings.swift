public import Chronology

/// The settings that every store has.
public struct StoreSettings: Sendable {
    public var rules = ProfileRules()
    /// The maximum number of changes that wait for one writer; more are refused. The SQLite store has one writer; in
    /// the PostgreSQL store each session is a writer.
    public var waitingChanges = 10_000
    /// The maximum estimated memory of the changes that wait for one writer, in bytes. Once it is exceeded, further
    /// changes are refused.
    public var waitingBytes = 64 << 20
    /// The maximum time for which the oldest waiting change may have waited, in seconds. After this time further
    /// changes are refused, and the PostgreSQL store no longer retries changes after conflicts.
    public var waitingSeconds = 5.0
    /// Whether this process deletes expired and old data in the background.
    public var deletesOld = true
    /// Whether the database must not change by itself: nothing is deleted or migrated, so that ``StoreCopy`` may still
    /// update a copy in it. The store itself still accepts changes; a ``ReadOnlyStore`` refuses them.
    public var isReadOnly = false
    /// The interval between sweeps for data to delete, in seconds.
    public var retentionInterval = 5.0
    /// The maximum number of rows that one transaction of a sweep deletes.
    public var retentionBatch = 500
    /// How long audit entries are kept.
    public var auditRetention = TimeSpan.days(400)
    /// How many datafiles of each project are kept, including the active one; at least 1.
    public var datafileHistory = 100
    /// How long goal events are kept, at least ``EventRules/minimumRetention``; `nil` means forever.
    public var eventRetention: TimeSpan?
    /// Whether changes of users are kept for readers of the feed, and for how long.
    public var feed = FeedMode.standard
    /// Where the store's time comes from; `nil` means the clock of the database: that of this host, or of the server of
    /// PostgreSQL.
    public var clock: WallClock?
    /// Called on any thread when the clock was set back.
    public var reportClock: @Sendable (StoreClock.Event) -> Void = { _ in }

    public init() {}
}
