/// A response to a request. The server adds `Date`, `Content-Length`, `X-Request-Id` and connection fields.
public struct Response {
    public enum Body {
        case empty
        case bytes([UInt8])
        /// A body that is produced while it is sent.
        case stream(any ResponseStream)
    }

    public var status: Status
    public var contentType: StaticString?
    /// Identifies the representation. With it, the server turns a matching `If-None-Match` of a `GET` or `HEAD` into
    /// 304.
    public var entityTag: EntityTag?
    /// Further header fields. Fields whose value has a control character are not sent.
    public var fields: [(name: StaticString, value: String)] = []
    public var body: Body
    /// Whether the body is compressed, so that the entity tag differs from that of the plain one.
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

/// A status code with its reason phrase (RFC 9110 §15, RFC 6585).
public struct Status: Sendable, Hashable {
    public let code: UInt16
    public let reason: StaticString

    public init(code: UInt16, reason: StaticString) {
        self.code = code
        self.reason = reason
    }

    /// A status that another server has sent. The reason phrase is empty if the code is not one of the constants below.
    public init(code: UInt16) {
        self = Self.known.first { $0.code == code } ?? Status(code: code, reason: "")
    }

    private static let known: [Status] = [
        .ok, .created, .accepted, .noContent, .notModified, .badRequest, .unauthorized, .forbidden, .notFound,
        .methodNotAllowed, .requestTimeout, .conflict, .gone, .preconditionFailed, .contentTooLarge, .uriTooLong,
        .unsupportedMediaType, .expectationFailed, .unprocessableContent, .requestHeaderFieldsTooLarge,
        .internalServerError, .notImplemented, .badGateway, .serviceUnavailable, .gatewayTimeout,
        .httpVersionNotSupported,
    ]

    public static func == (left: Status, right: Status) -> Bool { left.code == right.code }

    public func hash(into hasher: inout Hasher) { hasher.combine(code) }

    public static let ok = Status(code: 200, reason: "OK")
    public static let created = Status(code: 201, reason: "Created")
    public static let accepted = Status(code: 202, reason: "Accepted")
    public static let noContent = Status(code: 204, reason: "No Content")
    public static let notModified = Status(code: 304, reason: "Not Modified")
    public static let badRequest = Status(code: 400, reason: "Bad Request")
    public static let unauthorized = Status(code: 401, reason: "Unauthorized")
    public static let forbidden = Status(code: 403, reason: "Forbidden")
    public static let notFound = Status(code: 404, reason: "Not Found")
    public static let methodNotAllowed = Status(code: 405, reason: "Method Not Allowed")
    public static let requestTimeout = Status(code: 408, reason: "Request Timeout")
    public static let conflict = Status(code: 409, reason: "Conflict")
    public static let gone = Status(code: 410, reason: "Gone")
    public static let preconditionFailed = Status(code: 412, reason: "Precondition Failed")
    public static let contentTooLarge = Status(code: 413, reason: "Content Too Large")
    public static let uriTooLong = Status(code: 414, reason: "URI Too Long")
    public static let unsupportedMediaType = Status(code: 415, reason: "Unsupported Media Type")
    public static let expectationFailed = Status(code: 417, reason: "Expectation Failed")
    public static let unprocessableContent = Status(code: 422, reason: "Unprocessable Content")
    public static let requestHeaderFieldsTooLarge = Status(code: 431, reason: "Request Header Fields Too Large")
    public static let internalServerError = Status(code: 500, reason: "Internal Server Error")
    public static let notImplemented = Status(code: 501, reason: "Not Implemented")
    public static let badGateway = Status(code: 502, reason: "Bad Gateway")
    public static let serviceUnavailable = Status(code: 503, reason: "Service Unavailable")
    public static let gatewayTimeout = Status(code: 504, reason: "Gateway Timeout")
    public static let httpVersionNotSupported = Status(code: 505, reason: "HTTP Version Not Supported")

    /// 1xx, 204 and 304 have no body (RFC 9112 §6.3).
    var forbidsBody: Bool { code < 200 || code == 204 || code == 304 }
}
