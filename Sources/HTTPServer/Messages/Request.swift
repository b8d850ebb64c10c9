/// A request as its handler sees it during the call. It refers to bytes of the connection's buffer, so it can neither
/// be copied nor kept.
public struct Request: ~Copyable {
    let head: RequestHead
    /// The head, and behind it the body if that is buffered. All positions refer to these bytes.
    let bytes: UnsafeRawBufferPointer
    /// The position of the buffered body; empty if the body is streamed.
    let bodyRange: Range<Int>
    let parameters: PathParameters
    /// The id that the response will carry.
    public let id: RequestID
    /// The address that the request came from: the client's, or a proxy's.
    public let peer: IPAddress

    @inline(__always)
    package init(
        head: RequestHead, bytes: UnsafeRawBufferPointer, bodyRange: Range<Int>, parameters: PathParameters,
        id: RequestID, peer: IPAddress
    ) {
        self.head = head
        self.bytes = bytes
        self.bodyRange = bodyRange
        self.parameters = parameters
        self.id = id
        self.peer = peer
    }

    public var method: Method { head.method }

    /// The path, percent-encoded.
    public var path: String {
        head.path.isEmpty ? "/" : String(decoding: bytes[slice: head.path], as: UTF8.self)
    }

    /// Path and query, percent-encoded.
    public var target: String {
        hasQuery ? "\(path)?\(String(decoding: bytes[slice: head.query], as: UTF8.self))" : path
    }

    /// Returns the value of a header field; several fields of the name become one list (RFC 9110 §5.3). Invalid UTF-8
    /// becomes U+FFFD, so that such a field is not mistaken for an absent one.
    ///
    /// - Parameter name: in lower case.
    public func field(_ name: StaticString) -> String? {
        head.joinedValue(of: name, in: bytes)
    }

    /// Returns a path parameter, percent-decoded; `nil` if it is not UTF-8.
    ///
    /// - Parameter index: its position among the parameters of the route's pattern.
    public func parameter(_ index: Int) -> String? {
        guard index < parameters.count else { return nil }
        return PercentDecoding.decode(bytes[slice: parameters[index]])
    }

    /// Returns the query parameters in order, decoded as HTML forms are (`+` is a space); `nil` if one is not UTF-8.
    public func queryItems() -> [(name: String, value: String)]? {
        QueryItems.parse(bytes[slice: head.query])
    }

    public var hasQuery: Bool { !head.query.isEmpty }

    /// Whether the request has a field `If-Match` or `If-None-Match` (RFC 9110 §13.1). Cheaper than to look for them.
    public var isConditional: Bool { head.isConditional }

    /// The value of `Content-Encoding` in lower case (RFC 9110 §8.4); `nil` if there is no such field.
    public var contentCoding: String? { head.isEncoded ? field("content-encoding")?.lowercased() : nil }

    /// Passes the whole body to a closure; empty if the body is streamed.
    @inline(__always)
    public func withBody<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try body(bytes[slice: bodyRange])
    }
}

/// A copy of a request, for a handler that needs the request after it has returned.
public final class RequestCopy: @unchecked Sendable {
    // Safe: the bytes do not change.
    private let head: RequestHead
    private let bytes: UnsafeMutableRawBufferPointer
    private let bodyRange: Range<Int>
    private let parameters: PathParameters
    private let id: RequestID
    private let peer: IPAddress

    public init(_ request: borrowing Request) {
        head = request.head
        // Pipelined requests may follow in the buffer.
        let original = request.bytes[slice: 0..<max(request.head.length, request.bodyRange.upperBound)]
        bytes = .allocate(byteCount: original.count, alignment: 1)
        bytes.copyMemory(from: original)
        bodyRange = request.bodyRange
        parameters = request.parameters
        id = request.id
        peer = request.peer
    }

    deinit {
        bytes.deallocate()
    }

    /// Passes the request to a closure, which must not keep it.
    public func withRequest(_ body: (borrowing Request) async throws -> Response?) async throws -> Response? {
        defer { withExtendedLifetime(self) {} }
        return try await body(
            Request(
                head: head, bytes: UnsafeRawBufferPointer(bytes), bodyRange: bodyRange, parameters: parameters, id: id,
                peer: peer))
    }
}

/// The positions of a request's path parameters, in the order of the route's pattern.
package struct PathParameters {
    /// The maximum number of parameters in a pattern, which is the capacity of `ranges`.
    static let maximum = 4

    private(set) var count = 0
    private var ranges = InlineArray<4, Range<Int>>(repeating: 0..<0)

    subscript(index: Int) -> Range<Int> { ranges[index] }

    mutating func append(_ range: Range<Int>) {
        ranges[count] = range
        count += 1
    }

    mutating func removeLast() {
        count -= 1
    }
}

/// Receives a request body of any length piece by piece, on the connection's event loop.
public protocol BodyReceiver: AnyObject {
    /// The number of bytes that the receiver holds until more of the body arrive. They count towards
    /// ``Limits/unfinishedBodyBytes``.
    var heldBytes: Int { get }

    /// Receives the next piece, which is valid only during the call.
    ///
    /// - Returns: `false` to pause reading until ``Responder/resumeReading()``.
    func received(_ bytes: UnsafeRawBufferPointer) -> Bool

    /// The body is complete.
    func ended()

    /// The body will not be completed: the connection is closed, the client was too slow, or the coding is invalid.
    func aborted()
}
