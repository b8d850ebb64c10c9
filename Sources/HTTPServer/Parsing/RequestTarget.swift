/// The target of a request line (RFC 9112 §3.2): a path with a query, `http://host/path`, or `*`.
struct RequestTarget {
    private let text: UnsafeRawBufferPointer
    private let method: Method

    init(_ text: UnsafeRawBufferPointer, method: Method) {
        self.text = text
        self.method = method
    }

    /// Returns the positions of path and query. The path of `OPTIONS *` is `*`. The path of `http://host` is empty,
    /// which means `/`.
    func pathAndQuery() throws(RequestFailure) -> (path: Range<Int>, query: Range<Int>) {
        try checkCharacters()
        if method == .connect {
            throw RequestFailure(.notImplemented, "the server does not support CONNECT: it is not a proxy")
        }
        if text.equals("*") {
            guard method == .options else {
                throw RequestFailure(
                    .badRequest, "the request target * requires the method OPTIONS; got \(method.name)")
            }
            return (0..<1, 1..<1)
        }
        let start = text[0] == UInt8(ascii: "/") ? 0 : try pathStartOfAbsoluteForm()
        var pathEnd = start
        while pathEnd < text.count, text[pathEnd] != UInt8(ascii: "?") { pathEnd += 1 }
        return (start..<pathEnd, min(pathEnd + 1, text.count)..<text.count)
    }

    /// Checks that the target has only visible ASCII characters without `#`, and that each `%` begins an escape.
    private func checkCharacters() throws(RequestFailure) {
        guard !text.isEmpty else { throw RequestFailure(.badRequest, "the request target must not be empty") }
        var index = 0
        while index < text.count {
            let byte = text[index]
            guard ByteClass.isVisible(byte), byte != UInt8(ascii: "#") else {
                throw RequestFailure(
                    .badRequest, "the request target must be percent-encoded; got the byte \(byte) at offset \(index)")
            }
            if byte == ByteClass.percent {
                guard index + 2 < text.count, ByteClass.hexadecimalValue(text[index + 1]) != nil,
                    ByteClass.hexadecimalValue(text[index + 2]) != nil
                else {
                    throw RequestFailure(
                        .badRequest,
                        "a % in the request target must be followed by two hexadecimal digits, at offset \(index)")
                }
                index += 2
            }
            index += 1
        }
    }

    /// Returns the position of the path in a target of the form `http://host/path`. Servers must accept this form,
    /// although clients send it only to proxies (RFC 9112 §3.2.2).
    private func pathStartOfAbsoluteForm() throws(RequestFailure) -> Int {
        let notATarget = RequestFailure(.badRequest, "the request target must be a path or an http URL")
        let schemes: [StaticString] = ["http://", "https://"]
        guard
            let scheme = schemes.first(where: {
                text.count > $0.utf8CodeUnitCount && text[slice: 0..<$0.utf8CodeUnitCount].equalsIgnoringCase($0)
            })
        else { throw notATarget }
        let authority = scheme.utf8CodeUnitCount
        var end = authority
        while end < text.count, text[end] != UInt8(ascii: "/"), text[end] != UInt8(ascii: "?") { end += 1 }
        guard end > authority, text[authority..<end].allSatisfy(ByteClass.isHost) else { throw notATarget }
        return end
    }
}

/// A request target that arrives in the body of another request, as in a batch of requests.
public struct TargetText {
    /// The path, percent-encoded.
    public let path: String
    /// The query parameters, decoded like those of ``Request/queryItems()``.
    public let queryItems: [(name: String, value: String)]

    /// Parses a target; `nil` if it is not valid in a request line, or its query is not UTF-8.
    public init?(_ text: String) {
        var text = text
        let parts = text.withUTF8 { utf8 -> (path: String, queryItems: [(name: String, value: String)])? in
            let bytes = UnsafeRawBufferPointer(utf8)
            guard let target = try? RequestTarget(bytes, method: .get).pathAndQuery(),
                let items = QueryItems.parse(bytes[slice: target.query])
            else { return nil }
            return (String(decoding: bytes[slice: target.path], as: UTF8.self), items)
        }
        guard let parts else { return nil }
        path = parts.path
        queryItems = parts.queryItems
    }
}
