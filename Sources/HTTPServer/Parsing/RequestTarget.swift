import Glibc

/// The target of a request line (RFC 9112 §3.2): a path with a query, `http://host/path`, or `*`.
struct RequestTarget {
    private let text: UnsafeRawBufferPointer
    private let method: Method

    init(_ text: UnsafeRawBufferPointer, method: Method) {
        self.text = text
        self.method = method
    }

    /// Returns the positions of path and query. The path of `OPTIONS *` is `*`; that of `http://host` is empty, which
    /// means `/`.
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

    /// Accepts `http://host/path`: servers must, although clients send it only to proxies (RFC 9112 §3.2.2).
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

/// The parameters of a query in the encoding of HTML forms: `name=value` pairs, separated by `&`.
enum QueryItems {
    /// Parses a query; `nil` if a name or a value is not UTF-8.
    static func parse(_ query: UnsafeRawBufferPointer) -> [(name: String, value: String)]? {
        var items: [(name: String, value: String)] = []
        for pair in query.split(separator: UInt8(ascii: "&")) {
            let separator = pair.firstIndex(of: UInt8(ascii: "=")) ?? pair.endIndex
            let value = pair[min(separator + 1, pair.endIndex)...]
            guard let name = PercentDecoding.decode(.init(rebasing: pair[..<separator]), plusIsSpace: true),
                let value = PercentDecoding.decode(.init(rebasing: value), plusIsSpace: true)
            else { return nil }
            items.append((name, value))
        }
        return items
    }
}

/// Percent-decoding (RFC 3986 §2.1) of a target that is known to be valid.
package enum PercentDecoding {
    /// Decodes a part of a target; `nil` if the result is not UTF-8.
    ///
    /// - Parameter plusIsSpace: whether `+` stands for a space, as in the encoding of HTML forms.
    package static func decode(_ bytes: UnsafeRawBufferPointer, plusIsSpace: Bool = false) -> String? {
        let isPlain = !bytes.contains(ByteClass.percent) && !(plusIsSpace && bytes.contains(UInt8(ascii: "+")))
        if isPlain { return String(utf8: bytes) }
        return withUnsafeTemporaryAllocation(byteCount: max(bytes.count, 1), alignment: 1) { output in
            var length = 0
            var index = 0
            while index < bytes.count {
                var byte = bytes[index]
                if byte == ByteClass.percent, index + 2 < bytes.count,
                    let high = ByteClass.hexadecimalValue(bytes[index + 1]),
                    let low = ByteClass.hexadecimalValue(bytes[index + 2])
                {
                    byte = high << 4 | low
                    index += 2
                } else if plusIsSpace, byte == UInt8(ascii: "+") {
                    byte = ByteClass.space
                }
                output[length] = byte
                length += 1
                index += 1
            }
            return String(utf8: UnsafeRawBufferPointer(rebasing: output[..<length]))
        }
    }
}

extension String {
    /// Decodes UTF-8; `nil` if it is invalid. Decoding and comparing is several times faster than the standard
    /// library's validation.
    init?(utf8 bytes: UnsafeRawBufferPointer) {
        self.init(decoding: bytes, as: UTF8.self)
        // Decoding repairs invalid UTF-8, so the text differs from the bytes.
        let isUnchanged = withUTF8 { text in
            guard text.count == bytes.count, let text = text.baseAddress, let sent = bytes.baseAddress else {
                return bytes.isEmpty
            }
            return memcmp(text, sent, bytes.count) == 0
        }
        guard isUnchanged else { return nil }
    }
}
