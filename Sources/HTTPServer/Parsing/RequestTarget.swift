/// The target of a request line in its forms (RFC 9112 §3.2).
struct RequestTarget {
    private let text: UnsafeRawBufferPointer
    private let method: Method

    init(_ text: UnsafeRawBufferPointer, method: Method) {
        self.text = text
        self.method = method
    }

    /// Where path and query stand in the target. The path of `OPTIONS *` is `*`; that of `http://host` is empty and
    /// means the same as `/`.
    func pathAndQuery() throws(RequestFailure) -> (path: Range<Int>, query: Range<Int>) {
        try checkCharacters()
        if method == .connect {
            throw RequestFailure(.notImplemented, "the server does not support CONNECT: it is not a proxy")
        }
        if text.equals("*") {
            guard method == .options else {
                throw RequestFailure(.badRequest, "the request target * requires the method OPTIONS; got \(method.name)")
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

    /// `http://host/path`, which a server must accept though only proxies are sent it (RFC 9112 §3.2.2).
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
