public import Storage

/// The configuration of a PostgreSQL store.
public struct PostgreSQLConfiguration: Sendable {
    /// A connection string of libpq: `postgresql://…`, also with several hosts and `target_session_attrs=read-write`.
    public var url: String
    public var settings: StoreSettings
    /// Whether connections go through a pooler in transaction mode: statements are not prepared by name, and sessions have
    /// no settings.
    public var isPooled = false
    /// The connections of a session, at least 1. With 2, lookups go on during a commit; with more, so do changes of other
    /// users.
    public var connectionsPerSession = 2
    /// How long an exchange with the server may take before its connection is closed, in seconds.
    public var statementTimeout = 10.0
    /// The maximum number of changes in one transaction.
    public var batchLimit = 512
    /// Called on any thread when writes begin to fail, with the reason, and with `nil` when they succeed again.
    public var report: @Sendable (_ failure: String?) -> Void = { _ in }

    public init(url: String, _ settings: StoreSettings = StoreSettings()) {
        self.url = url
        self.settings = settings
    }
}
