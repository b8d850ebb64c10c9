/// The configuration of an edge.
public struct EdgeConfiguration: Sendable {
    /// The response of an edge to a first enrollment while the upstream is away.
    public enum OfflineEnrollment: String, Sendable, CaseIterable {
        /// The variation by the hash of the user's id, which is not stored.
        case hash
        /// An error.
        case refuse
    }

    /// The address of the upstream, without a slash at the end.
    public var url: String
    /// The token of scope `edge`; `nil` for an upstream without tokens.
    public var token: String?
    public var offlineEnrollment = OfflineEnrollment.hash
    /// How far the copy may be behind before the upstream is asked instead, in seconds.
    public var maxLag = 10.0
    /// The time limit of a response in seconds. The time for which the upstream is asked to wait is added to it.
    public var timeout = 2.0
    /// The maximum number of entries in the outbox.
    public var outboxEntries = 10_000_000
    /// The maximum size of the entries in the outbox, in bytes.
    public var outboxBytes = 1 << 30
    /// The maximum number of changes and lookups that wait for the upstream; more are refused.
    public var waitingRequests = 10_000
    /// Receives events for operators. Called on any thread.
    public var report: @Sendable (EdgeEvent) -> Void = { _ in }

    public init(url: String, token: String? = nil) {
        self.url = url
        self.token = token
    }

    /// How long the upstream is asked to wait for changes before it responds, in seconds: 1 to 30, and at most a third
    /// of ``maxLag``, because an upstream that waits cannot be told from one that is cut off.
    var pollSeconds: Int { max(1, min(30, Int(maxLag / 3))) }
}

/// An event for the operators of an edge, reported once per change of state.
public enum EdgeEvent: Sendable {
    case upstreamIsAway(reason: String)
    case upstreamResponds
    /// The copy of all users begins.
    case copyBegins(reason: String)
    case copyEnds(users: Int)
    /// The upstream has refused events for good. They were dropped.
    case eventsRefused(count: Int, reason: String)
    /// Exposures were dropped that name no variation, of users who have no assignment at the upstream either. Reported
    /// at most once an hour, with the number since the last report.
    case exposuresUnassigned(count: Int, reason: String)
    /// This host's clock is far ahead of the upstream's time, or behind it if the number is negative.
    case clockIsFarOff(seconds: Double)
    /// The edge's own file was damaged: it is kept under another name, and all users are copied anew.
    case copyWasDamaged(reason: String, kept: String)
    /// The edge's own file cannot be written. The edge tries again to follow the feed.
    case copyFails(reason: String)
}
