/// The configuration of an edge.
///
/// An edge is a server near its apps that serves requests for another server, its upstream. It has two files: the copy
/// (the upstream's users and definitions, from which it decides) and the outbox (events that wait until the upstream
/// has stored them). See ``EdgeStore``.
public struct EdgeConfiguration: Sendable {
    /// How an edge responds to the first enrollment of a user while the upstream, which makes assignments, is away.
    public enum OfflineEnrollment: String, Sendable, CaseIterable {
        /// Responds with the variation that the hash of the user's id selects, and stores nothing.
        case hash
        /// Responds with an error.
        case refuse
    }

    /// The address of the upstream, without a slash at the end.
    public var url: String
    /// The token of scope `edge`; `nil` for an upstream without tokens.
    public var token: String?
    public var offlineEnrollment = OfflineEnrollment.hash
    /// How old the copy may be before lookups go to the upstream instead, in seconds; at least 1. While the upstream is
    /// away, the copy serves lookups at any age.
    public var maxLag = 10.0
    /// How long the upstream may take for a response, in seconds. For a long poll, the time for which the
    /// upstream holds the request is added.
    public var timeout = 2.0
    /// The maximum number of entries in the outbox. While the outbox is full, events go directly to the upstream.
    public var outboxEntries = 10_000_000
    /// The maximum size of the entries in the outbox, in bytes. An outbox of this size is full as well.
    public var outboxBytes = 1 << 30
    /// The maximum number of requests of one kind that wait for the upstream. The kinds are changes, lookups, and
    /// events that do not fit into the outbox. Further requests are refused.
    public var waitingRequests = 10_000
    /// Receives events for operators. Called on any thread.
    public var report: @Sendable (EdgeEvent) -> Void = { _ in }

    public init(url: String, token: String? = nil) {
        self.url = url
        self.token = token
    }

    /// The smallest and the greatest value of ``pollSeconds``.
    private static let pollRange = 1...30

    /// How long the upstream holds a long poll until there are changes, in seconds.
    ///
    /// At most a third of ``maxLag``: during a poll the edge cannot tell an upstream without changes from one that was
    /// cut off, and the copy counts as current only as of the start of the last complete poll.
    var pollSeconds: Int { max(Self.pollRange.lowerBound, min(Self.pollRange.upperBound, Int(maxLag / 3))) }
}

/// An event for the operators of an edge, reported once per change of state.
public enum EdgeEvent: Sendable {
    case upstreamIsAway(reason: String)
    case upstreamResponds
    /// The edge begins to copy all users of the upstream.
    case copyBegins(reason: String)
    /// The copy of all users is complete.
    case copyEnds(users: Int)
    /// The upstream has refused events for good, and the edge has dropped them.
    case eventsRefused(count: Int, reason: String)
    /// Exposures were dropped because they name no variation and their users have no assignment at the upstream either.
    /// Reported at most once an hour, with the number since the last report.
    case exposuresUnassigned(count: Int, reason: String)
    /// The host's clock is far ahead of the upstream's time, or behind it if the number is negative.
    case clockIsFarOff(seconds: Double)
    /// The file of the copy was damaged. The edge has renamed the file, and copies all users anew.
    ///
    /// - Parameter kept: the new name of the damaged file.
    case copyWasDamaged(reason: String, kept: String)
    /// The edge cannot write the copy. It tries again to follow the feed.
    case copyFails(reason: String)
}
