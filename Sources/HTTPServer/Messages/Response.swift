/// A response to a request. The server adds `Date`, `Content-Length`, `X-Request-Id` and connection fields.
public struct Response {
    /// The body, in memory or as a stream.
    public enum Body {
        case empty
        case bytes([UInt8])
        /// A body that is produced while it is sent.
        case stream(any ResponseStream)
    }

    public var status: Status
    public var contentType: StaticString?
    /// Identifies the representation. If the `If-None-Match` of a `GET` or `HEAD` lists this tag, the server responds
    /// with 304 instead.
    public var entityTag: EntityTag?
    /// Further header fields. Fields whose value has a control character are not sent.
    public var fields: [(name: StaticString, value: String)] = []
    public var body: Body
    /// Whether the body is compressed. Its entity tag then ends with ``EntityTag/compressedSuffix``.
    var isCompressed = false

    public init(
        _ status: Status, contentType: StaticString? = nil, entityTag: EntityTag? = nil, body: Body = .empty
    ) {
        self.status = status
        self.contentType = contentType
        self.entityTag = entityTag
        self.body = body
    }

    /// A response with a plain text.
    public init(_ status: Status, text: String) {
        self.init(status, contentType: "text/plain; charset=utf-8", body: .bytes(Array(text.utf8)))
    }

    /// The number of bytes that the response holds in memory until it is written.
    var heldBytes: Int {
        if case .bytes(let bytes) = body { return bytes.count }
        return 0
    }
}
