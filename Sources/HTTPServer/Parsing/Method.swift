/// The request methods of RFC 9110 §9 and RFC 5789; any other is answered with 501.
public enum Method: UInt8, Sendable, CaseIterable {
    case get, head, post, put, patch, delete, options, trace, connect

    public var name: StaticString {
        switch self {
        case .get: "GET"
        case .head: "HEAD"
        case .post: "POST"
        case .put: "PUT"
        case .patch: "PATCH"
        case .delete: "DELETE"
        case .options: "OPTIONS"
        case .trace: "TRACE"
        case .connect: "CONNECT"
        }
    }

    /// Whether it only reads (RFC 9110 §9.2.1), so that requests behind it need not wait for its answer.
    var isSafe: Bool {
        switch self {
        case .get, .head, .options, .trace: true
        case .post, .put, .patch, .delete, .connect: false
        }
    }

    @inline(__always)
    init?(_ bytes: UnsafeRawBufferPointer) {
        switch bytes.count {
        case 3 where bytes.equals("GET"): self = .get
        case 3 where bytes.equals("PUT"): self = .put
        case 4 where bytes.equals("POST"): self = .post
        case 4 where bytes.equals("HEAD"): self = .head
        case 5 where bytes.equals("PATCH"): self = .patch
        case 5 where bytes.equals("TRACE"): self = .trace
        case 6 where bytes.equals("DELETE"): self = .delete
        case 7 where bytes.equals("OPTIONS"): self = .options
        case 7 where bytes.equals("CONNECT"): self = .connect
        default: return nil
        }
    }
}
