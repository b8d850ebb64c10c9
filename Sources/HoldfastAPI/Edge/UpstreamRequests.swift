/// The server that this one follows as an edge.
public protocol UpstreamRequests: AnyObject, Sendable {
    /// Sends a request and waits for its response, some tens of seconds: results may take long.
    func send(_ request: UpstreamRequest) async throws(UpstreamFailure) -> UpstreamResponse

    /// Waits until the store has what the upstream had when this was called. It gives up after a few seconds.
    func catchUp() async
}

/// A request to the upstream.
public struct UpstreamRequest: Sendable {
    public var method: String
    /// Path and query, percent-encoded.
    public var target: String
    /// Header fields without those of the connection.
    public var fields: [(name: String, value: String)]
    public var body: [UInt8]
    /// Whether to add the edge's own token; otherwise ``fields`` have the credential of the caller, if there is one.
    public var hasOwnToken: Bool
}

public struct UpstreamResponse: Sendable {
    public var status: Int
    public var fields: [(name: String, value: String)]
    public var body: [UInt8]

    public init(status: Int, fields: [(name: String, value: String)], body: [UInt8]) {
        self.status = status
        self.fields = fields
        self.body = body
    }

    /// - Parameter name: in lower case.
    func field(_ name: String) -> String? {
        fields.first { $0.name.lowercased() == name }?.value
    }
}

/// Why the upstream has not responded.
public enum UpstreamFailure: Error, Sendable, Equatable {
    /// It cannot be reached, or did not respond in time.
    case away
    /// Too many requests wait for it.
    case overloaded
    /// The response is longer than an edge keeps in memory.
    case tooLarge(limit: Int)
}
