/// A status code with its reason phrase (RFC 9110 §15, RFC 6585).
public struct Status: Sendable, Hashable {
    public let code: UInt16
    public let reason: StaticString

    public init(code: UInt16, reason: StaticString) {
        self.code = code
        self.reason = reason
    }

    /// Creates the status of a response from another server. The reason phrase is empty if the code is not one of the
    /// constants below.
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
