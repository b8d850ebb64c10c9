/// Why a request of an edge to its upstream has failed.
public enum UpstreamError: Error, Sendable {
    /// There was no complete response, and the upstream has changed nothing: either nothing was sent, or the request
    /// only reads.
    case noResponse(String)
    /// The request was sent, but there was no complete response. It is unknown whether the upstream has performed it.
    case late(String)
    /// The upstream refuses the request.
    case refused(status: Int, detail: String)
    /// The response does not come from the store that this edge follows, but from something else at its address, such
    /// as a proxy.
    case foreign(String)
    /// The response cannot be decoded.
    case malformed(String)
    /// The upstream's records of a user are damaged.
    case damaged(String)
    /// The response is longer than the request allows.
    case tooLarge(limit: Int)
    /// Too many requests wait for the upstream.
    case overloaded
    /// The edge is closing.
    case closing
}

extension UpstreamError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .noResponse(let reason): "the upstream does not respond: \(reason)"
        case .late(let reason): "the upstream does not respond completely: \(reason)"
        case .refused(let status, let detail) where status == 401 || status == 403:
            "the upstream refuses the token of this edge with \(status): \(detail)"
        case .refused(let status, let detail): "the upstream responds \(status): \(detail)"
        case .foreign(let reason): "the upstream does not respond, but something else does at its address: \(reason)"
        case .malformed(let reason): "the upstream sent what this edge does not understand: \(reason)"
        case .damaged(let reason): reason
        case .tooLarge(let limit): "the upstream's response is longer than \(limit) bytes"
        case .overloaded: "too many requests wait for the upstream"
        case .closing: "the edge is closing"
        }
    }
}

extension UpstreamError {
    /// The name of the case, or the status of a refusal, for spans.
    var kind: String {
        switch self {
        case .noResponse: "no_response"
        case .late: "late"
        case .refused(let status, _): "\(status)"
        case .foreign: "foreign"
        case .malformed: "malformed"
        case .damaged: "damaged"
        case .tooLarge: "too_large"
        case .overloaded: "overloaded"
        case .closing: "closing"
        }
    }

    /// Whether the upstream counts as away, because other requests would fail as well. This is so if the upstream does
    /// not respond, if it fails (500 to 599), if it refuses the edge's token (401, 403), or if it lacks the routes for
    /// edges (404).
    var meansAway: Bool {
        switch self {
        case .noResponse, .late, .foreign: true
        case .refused(let status, _): status >= 500 || [401, 403, 404].contains(status)
        case .malformed, .damaged, .tooLarge, .overloaded, .closing: false
        }
    }

    /// Whether the upstream may have performed the request.
    var isUnknown: Bool { if case .late = self { true } else { false } }
}
