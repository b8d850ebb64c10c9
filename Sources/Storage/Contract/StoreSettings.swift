public import Chronology

/// The settings that every store has.
public struct StoreSettings: Sendable {
    public var rules = ProfileRules()
    /// The maximum number of changes that wait for one writer. Further changes are refused. The SQLite store has one
    /// writer; in the PostgreSQL store each session is a writer.
    public var waitingChanges = 10_000
    /// The maximum estimated memory of the changes that wait for one writer, in bytes. Further changes are refused.
    public var waitingBytes = 64 << 20
    /// The maximum waiting time of a change, in seconds. While a change has waited for longer, further changes are
    /// refused, and the PostgreSQL store no longer retries changes after conflicts.
    public var waitingSeconds = 5.0
    /// Whether this process deletes expired and old data in the background.
    public var deletesOld = true
    /// Whether the store makes no changes of its own: it deletes and migrates nothing, so that ``StoreCopy`` may still
    /// update a copy in the database. The store still accepts changes from callers; a ``ReadOnlyStore`` refuses them.
    public var isReadOnly = false
    /// The interval between sweeps for data to delete, in seconds.
    public var retentionInterval = 5.0
    /// The maximum number of rows that one transaction of a sweep deletes.
    public var retentionBatch = 500
    /// How long audit entries are kept.
    public var auditRetention = TimeSpan.days(400)
    /// The number of datafiles of each project that are kept, including the active datafile; at least 1.
    public var datafileHistory = 100
    /// How long goal events are kept, at least ``EventRules/minimumRetention``; `nil` to keep them forever.
    public var eventRetention: TimeSpan?
    /// Whether changes of users are kept for readers of the feed, and for how long.
    public var feed = FeedMode.standard
    /// The source of the store's time; `nil` for the clock of the database: the clock of this host for SQLite, or of
    /// the database server for PostgreSQL.
    public var clock: WallClock?
    /// Called on any thread when the clock was set back; see ``StoreClock``.
    public var reportClock: @Sendable (StoreClock.Event) -> Void = { _ in }

    public init() {}
}
