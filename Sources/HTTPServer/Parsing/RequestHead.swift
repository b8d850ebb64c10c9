/// The request line and the header fields of one request, as positions in the bytes that they were parsed from.
package struct RequestHead {
    /// A field line; the value without the white space around it.
    package struct Field {
        var name: Range<Int>
        var value: Range<Int>
    }

    /// How the end of the body is found (RFC 9112 §6.3).
    enum BodyLength: Equatable {
        case none
        case fixed(Int)
        case chunked
    }

    package var method: Method = .get
    /// The path and the query of the target without the `?`, both percent-encoded. An empty path means `/`.
    package var path: Range<Int> = 0..<0
    var query: Range<Int> = 0..<0
    /// Whether the version is HTTP/1.1 or a later 1.x; else it is HTTP/1.0.
    var isVersion11 = true
    /// Whether the connection may stay open (RFC 9112 §9.3).
    var keepsAlive = true
    var body: BodyLength = .none
    var expectsContinue = false
    /// Whether there is a field `If-Match` or `If-None-Match`.
    var isConditional = false
    /// Whether there is a field `Content-Encoding`.
    var isEncoded = false
    package var fields: [Field] = []
    /// Bytes of the whole head, with its empty line.
    package var length = 0

    /// Returns path and query as the client sent them.
    func target(in bytes: UnsafeRawBufferPointer) -> String {
        String(decoding: bytes[slice: path.lowerBound..<max(path.upperBound, query.upperBound)], as: UTF8.self)
    }

    /// Returns the value of the first field of this name.
    ///
    /// - Parameter name: in lower case.
    package func value(of name: StaticString, in bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        for field in fields where isNamed(field, name, bytes) { return bytes[slice: field.value] }
        return nil
    }

    /// Returns the values of all fields of this name, joined by commas (RFC 9110 §5.3).
    ///
    /// - Parameter name: in lower case.
    func joinedValue(of name: StaticString, in bytes: UnsafeRawBufferPointer) -> String? {
        var joined: String?
        for field in fields where isNamed(field, name, bytes) {
            let value = String(decoding: bytes[slice: field.value], as: UTF8.self)
            joined = joined.map { "\($0), \(value)" } ?? value
        }
        return joined
    }

    /// Whether the client prefers compressed responses.
    @inline(__always)
    func acceptsGzip(in bytes: UnsafeRawBufferPointer) -> Bool {
        let name: StaticString = "accept-encoding"
        var accepted: Range<Int>?
        for field in fields where isNamed(field, name, bytes) {
            guard accepted == nil else { return ContentCoding.acceptsGzip(joinedValue(of: name, in: bytes) ?? "") }
            accepted = field.value
        }
        return accepted.map { ContentCoding.acceptsGzip(bytes[slice: $0]) } ?? false
    }

    private func isNamed(_ field: Field, _ name: StaticString, _ bytes: UnsafeRawBufferPointer) -> Bool {
        field.name.count == name.utf8CodeUnitCount && bytes[slice: field.name].equalsIgnoringCase(name)
    }
}

/// The request methods of RFC 9110 §9 and RFC 5789. Any other gets 501.
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

    /// Whether the method only reads (RFC 9110 §9.2.1), so that pipelined requests behind the request need not wait.
    public var isSafe: Bool {
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
