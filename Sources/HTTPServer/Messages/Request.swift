/// A request as a handler sees it, for the time of the call: the bytes are still those of the connection's buffer,
/// so it can be neither copied nor kept.
public struct Request: ~Copyable {
    let head: RequestHead
    let bytes: UnsafeRawBufferPointer
    let bodyRange: Range<Int>
    let parameters: PathParameters
    /// The id that the answer will carry.
    public let id: RequestID
    /// Who has sent it: the client, or a proxy.
    public let peer: IPAddress

    public var method: Method { head.method }

    /// The percent-encoded path.
    public var path: String {
        head.path.isEmpty ? "/" : String(decoding: bytes[slice: head.path], as: UTF8.self)
    }

    /// The value of the fields of this name (given in lower case), those of several lines as one list (RFC 9110 §5.3);
    /// `nil` when there is none. Bytes that are no UTF-8 become U+FFFD, so that a field with such is not taken for an
    /// absent one.
    public func field(_ name: StaticString) -> String? {
        head.joinedValue(of: name, in: bytes)
    }

    /// The part of the path that the route's pattern names, in the order of the pattern, percent-decoded; `nil` when
    /// it is no UTF-8.
    public func parameter(_ index: Int) -> String? {
        guard index < parameters.count else { return nil }
        return PercentDecoding.decode(bytes[slice: parameters[index]])
    }

    /// The parameters of the query in their order, decoded as HTML forms are (`+` is a space).
    ///
    /// - Returns: `nil` when a name or a value is no UTF-8.
    public func queryItems() -> [(name: String, value: String)]? {
        QueryItems.parse(bytes[slice: head.query])
    }

    public var hasQuery: Bool { !head.query.isEmpty }

    /// Lends the body, whole; empty for a streamed one.
    @inline(__always)
    public func withBody<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try body(bytes[slice: bodyRange])
    }
}

/// Where the parts of a path stand that a pattern names.
struct PathParameters {
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

/// Takes the body of one request piece by piece, on the connection's event loop, so that it may be of any length.
public protocol BodyReceiver: AnyObject {
    /// Bytes of the body that it keeps until more has come, which count as ``Limits/unfinishedBodyBytes``.
    var heldBytes: Int { get }

    /// The next piece; lent for the call.
    ///
    /// - Returns: whether more is welcome now. After `false`, reading goes on with ``Responder/resumeReading()``.
    func received(_ bytes: UnsafeRawBufferPointer) -> Bool

    /// The body is complete.
    func ended()

    /// The connection was lost, the client too slow, or the coding broken; nothing more will come.
    func aborted()
}
