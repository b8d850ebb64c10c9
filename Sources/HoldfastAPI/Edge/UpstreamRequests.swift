import JSON

/// The upstream: the server that this one follows as an edge, and whose data it copies. The program implements this
/// protocol by HTTP.
public protocol UpstreamRequests: AnyObject, Sendable {
    /// Sends a request and waits for its response.
    func send(_ request: UpstreamRequest) async throws(UpstreamFailure) -> ForwardedResponse

    /// Waits until the copy has everything that the upstream had committed before this call, but at most a few seconds.
    func catchUp() async

    /// The current status of the edge.
    var status: EdgeStatus { get }
}

/// The status of an edge.
public struct EdgeStatus: Sendable {
    /// The address of the upstream.
    let upstream: String
    /// Whether the upstream responds.
    let isUp: Bool
    /// Why the upstream does not respond; `nil` if it responds, or if no request was sent yet.
    let failure: String?
    /// Whether the copy is complete, so that the edge can serve without its upstream.
    let isComplete: Bool
    /// The seconds since the copy was last known to be up to date; `nil` if it has not been in this run.
    let lag: Double?
    /// The number of events that wait for the upstream.
    let waitingEvents: Int

    public init(
        upstream: String, isUp: Bool, failure: String?, isComplete: Bool, lag: Double?, waitingEvents: Int
    ) {
        self.upstream = upstream
        self.isUp = isUp
        self.failure = failure
        self.isComplete = isComplete
        self.lag = lag
        self.waitingEvents = waitingEvents
    }

    /// Writes the status for health checks.
    func append(to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("upstream", upstream)
        writer.member("upstream_up", isUp)
        writer.member("copy_complete", isComplete)
        if let lag {
            writer.key("lag_seconds")
            writer.shortest((lag * 1_000).rounded() / 1_000)
        }
        writer.member("outbox_events", waitingEvents)
        if let failure { writer.member("detail", failure) }
        writer.endObject()
    }
}

/// A request to the upstream.
public struct UpstreamRequest: Sendable {
    public var method: String
    /// The path and query, percent-encoded.
    public var target: String
    /// The header fields, without fields about the connection.
    public var fields: [(name: String, value: String)]
    public var body: [UInt8]
    /// Whether to add the edge's own token; otherwise ``fields`` have the credential of the caller, if there is one.
    public var hasOwnToken: Bool
    /// Whether the upstream may take some tens of seconds before it responds: results, imports, administration.
    public var takesLong: Bool
}

/// The response of the upstream to a forwarded request.
public struct ForwardedResponse: Sendable {
    public var status: Int
    public var fields: [(name: String, value: String)]
    public var body: [UInt8]

    public init(status: Int, fields: [(name: String, value: String)], body: [UInt8]) {
        self.status = status
        self.fields = fields
        self.body = body
    }

    /// Returns the value of a header field; `nil` if the response has none.
    ///
    /// - Parameter name: in lower case.
    func field(_ name: String) -> String? {
        fields.first { $0.name.lowercased() == name }?.value
    }
}

/// The reason for which the upstream has sent no response.
public enum UpstreamFailure: Error, Sendable, Equatable {
    /// The upstream cannot be reached.
    case away
    /// The upstream did not respond in time. It may have performed the request.
    case late
    /// Too many requests wait for the upstream.
    case overloaded
    /// The response is longer than an edge keeps in memory.
    case tooLarge(limit: Int)
}
