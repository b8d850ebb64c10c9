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

    public init(_ status: Status, text: String) {
        self.init(status, contentType: "text/plain; charset=utf-8", body: .bytes(Array(text.utf8)))
    }

    /// The number of bytes that it holds in memory until it is written.
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

    /// A status of another server, with the usual reason phrase as far as it is known here.
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

/// A strong validator (RFC 9110 §8.8.3) made of a 64-bit number, sent as 16 hexadecimal digits in quotes.
public struct EntityTag: Hashable, Sendable {
    public let value: UInt64

    public init(_ value: UInt64) {
        self.value = value
    }

    /// Hashes bytes to a tag that is the same in every process.
    ///
    /// Each step multiplies eight bytes and folds them into the next, so that every input bit affects every bit of the
    /// tag. The hash does not resist deliberate collisions.
    public init(hashing bytes: UnsafeRawBufferPointer) {
        var hash = UInt64(truncatingIfNeeded: bytes.count) ^ 0x9E37_79B9_7F4A_7C15
        func mix(_ word: UInt64) {
            let (high, low) = (hash ^ word).multipliedFullWidth(by: 0xD6E8_FEB8_6659_FD93)
            hash = (hash << 23 | hash >> 41) &+ (high ^ low)
        }
        var offset = 0
        while offset + 8 <= bytes.count {
            mix(bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            offset += 8
        }
        var rest: UInt64 = 0
        while offset < bytes.count {
            rest = rest << 8 | UInt64(bytes[offset])
            offset += 1
        }
        mix(rest)
        mix(0x2545_F491_4F6C_DD1D)
        value = hash
    }

    /// Reads the ``text`` of a tag, with or without ``compressedSuffix``.
    public init?(_ text: String) {
        var digits = text.dropFirst().dropLast()
        guard text.hasPrefix("\""), text.hasSuffix("\"") else { return nil }
        if digits.hasSuffix("-gzip") { digits = digits.dropLast("-gzip".count) }
        guard digits.utf8.count == 16, let value = UInt64(digits, radix: 16) else { return nil }
        self.init(value)
    }

    public var text: String {
        let digits = String(value, radix: 16)
        return "\"" + String(repeating: "0", count: 16 - digits.utf8.count) + digits + "\""
    }

    /// The representation that a tag identifies.
    enum Form {
        case plain
        /// The gzip representation, whose tag ends with ``compressedSuffix``.
        case compressed
    }

    /// The text behind the number in the tag of a compressed representation.
    static let compressedSuffix = "-gzip"

    /// Whether a condition lists this tag (RFC 9110 §13.1), of the plain representation or of the compressed one.
    ///
    /// - Parameters:
    ///   - condition: the value of `If-None-Match` or `If-Match`.
    ///   - weakly: whether `W/` is ignored, as for `If-None-Match`.
    public func isListed(in condition: String, weakly: Bool = true) -> Bool {
        listedForm(in: condition, weakly: weakly) != nil
    }

    /// Returns which form of this tag a condition lists.
    ///
    /// - Parameter includesCompressed: whether that of the compressed representation counts.
    func listedForm(in condition: String, weakly: Bool = true, includesCompressed: Bool = true) -> Form? {
        if condition == "*" { return .plain }
        // No tag has a quotation mark within it, so a comma within one cannot make it look like this one.
        for element in condition.utf8.split(separator: UInt8(ascii: ",")) {
            let isBlank = { (byte: UInt8) in byte == ByteClass.space || byte == ByteClass.tab }
            let end = element.lastIndex { !isBlank($0) }.map(element.index(after:)) ?? element.endIndex
            let tag = element[..<end].drop(while: isBlank)
            let strong = weakly && tag.starts(with: "W/".utf8) ? tag.dropFirst(2) : tag
            if strong.elementsEqual(text.utf8) { return .plain }
            let compressed = text.dropLast() + Self.compressedSuffix + "\""
            if includesCompressed, strong.elementsEqual(compressed.utf8) { return .compressed }
        }
        return nil
    }
}
