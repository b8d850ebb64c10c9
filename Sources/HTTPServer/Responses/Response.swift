/// An answer to a request. The server adds `Date`, `Content-Length`, `X-Request-Id` and what the connection needs.
public struct Response {
    public enum Body {
        case empty
        case bytes([UInt8])
        /// Bytes made while they are sent; see ``ResponseStream``.
        case stream(any ResponseStream)
    }

    public var status: Status
    public var contentType: StaticString?
    /// Names the representation; with it, `If-None-Match` is answered by the server with 304 where it applies.
    public var entityTag: EntityTag?
    /// Further fields. A value with a control character is dropped rather than sent.
    public var fields: [(name: StaticString, value: String)] = []
    public var body: Body

    public init(
        _ status: Status, contentType: StaticString? = nil, entityTag: EntityTag? = nil, body: Body = .empty
    ) {
        self.status = status
        self.contentType = contentType
        self.entityTag = entityTag
        self.body = body
    }

    /// Bytes that it keeps in memory until it is written.
    var heldBytes: Int {
        if case .bytes(let bytes) = body { return bytes.count }
        return 0
    }

    public init(_ status: Status, text: String) {
        self.init(status, contentType: "text/plain; charset=utf-8", body: .bytes(Array(text.utf8)))
    }
}
