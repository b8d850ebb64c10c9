public import Storage

/// The configuration of a PostgreSQL store.
public struct PostgreSQLConfiguration: Sendable {
    /// A connection string of libpq: `postgresql://…`, also with several hosts and `target_session_attrs=read-write`.
    public var url: String
    public var rules = ProfileRules()
    /// Whether a pooler in transaction mode lies in between: statements are not prepared by name, and sessions have no
    /// settings.
    public var isPooled = false
    /// The connections of a session, at least 1: with 2, lookups go on while a commit is under way; with more, changes of
    /// other users, too.
    public var connectionsPerSession = 2
    /// How long an exchange with the server may take before its connection is given up, in seconds.
    public var statementTimeout = 10.0
    /// The maximum number of changes of one session that wait; more are refused.
    public var waitingChanges = 10_000
    /// How long a change may wait, in seconds; beyond it further changes are refused, and contended ones fail.
    public var waitingSeconds = 5.0
    /// The maximum number of changes in one transaction.
    public var batchLimit = 512
    /// Whether this process deletes expired and old data in the background.
    public var deletesOld = true
    /// Whether the database is only read, so that nothing is migrated or deleted and a copy into it may still be brought up
    /// to date. Changes are not refused: that is left to a ``ReadOnlyStore``.
    public var isReadOnly = false
    /// The interval between sweeps for data to delete, in seconds.
    public var retentionInterval = 5.0
    /// The maximum number of rows that one transaction of a sweep deletes.
    public var retentionBatch = 500
    /// How long audit entries are kept.
    public var auditRetention = Duration.seconds(400 * 86_400)
    /// How many datafiles of each project are kept, including the active one; at least 1.
    public var datafileHistory = 100
    /// How long goal events are kept, in milliseconds, at least ``EventRules/minimumRetention``; `nil` means forever.
    public var eventRetention: Timestamp?
    public var clock: WallClock = systemWallClock
    /// Called on any thread when writes have begun to fail, with the reason, and with `nil` when they succeed again.
    public var report: @Sendable (_ failure: String?) -> Void = { _ in }

    public init(url: String) {
        self.url = url
    }
}
