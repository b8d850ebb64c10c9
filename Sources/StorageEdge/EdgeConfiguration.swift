/// The configuration of an edge.
public struct EdgeConfiguration: Sendable {
    /// What an edge responds to a first enrollment while the upstream is away.
    public enum OfflineEnrollment: String, Sendable, CaseIterable {
        /// The variation that the hash gives, without storing it.
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
    /// How long the upstream may take for a response, beside the time for which it is asked to wait, in seconds.
    public var timeout = 2.0
    /// The maximum number of entries in the outbox, and their size in bytes.
    public var outboxEntries = 10_000_000
    public var outboxBytes = 1 << 30
    /// The maximum number of changes and lookups that wait for the upstream; more are refused.
    public var waitingRequests = 10_000
    /// Called on any thread.
    public var report: @Sendable (EdgeEvent) -> Void = { _ in }

    public init(url: String, token: String? = nil) {
        self.url = url
        self.token = token
    }

    /// How long the upstream is asked to wait for news, in seconds. A part of ``maxLag``: while it waits, nothing tells a
    /// quiet upstream from one that is cut off.
    var pollSeconds: Int { max(1, min(30, Int(maxLag / 3))) }
}

/// What operators of an edge should know of, reported once per change of state.
public enum EdgeEvent: Sendable {
    case upstreamIsAway(reason: String)
    case upstreamResponds
    /// All users are copied.
    case copyBegins(reason: String)
    case copyEnds(users: Int)
    /// The upstream will not take an event, whatever is tried; it was dropped.
    case eventsRefused(count: Int, reason: String)
    /// Exposures that name no variation, of users who have none at the upstream either, were dropped: at most once an hour,
    /// with those since the last time.
    case exposuresUnassigned(count: Int, reason: String)
    /// This host's clock is far ahead of the upstream's time, or behind it if the number is negative.
    case clockIsFarOff(seconds: Double)
    /// The edge's own file was damaged: it is kept under another name, and all users are copied anew.
    case copyWasDamaged(reason: String, kept: String)
    /// The edge's own file cannot be written; following is tried again.
    case copyFails(reason: String)
}
