/// The fields that say where a message ends and what becomes of its connection (RFC 9112 §6 and §9).
struct FramingFields {
    private var contentLength: Int?
    private var isChunked = false
    private var asksToClose = false
    private var asksToKeepAlive = false

    mutating func readConnection(_ value: UnsafeRawBufferPointer) {
        value.forEachListElement { option in
            if option.equalsIgnoringCase("close") { asksToClose = true }
            if option.equalsIgnoringCase("keep-alive") { asksToKeepAlive = true }
        }
    }

    mutating func readContentLength(_ value: UnsafeRawBufferPointer) throws(RequestFailure) {
        guard contentLength == nil else {
            throw RequestFailure(.badRequest, "there is more than one Content-Length field")
        }
        guard !value.isEmpty else { throw RequestFailure(.badRequest, "Content-Length is empty") }
        var length = 0
        for byte in value {
            let digit = byte &- UInt8(ascii: "0")
            guard digit < 10 else { throw RequestFailure(.badRequest, "Content-Length is not a decimal number") }
            let (shifted, overflow) = length.multipliedReportingOverflow(by: 10)
            let (sum, carry) = shifted.addingReportingOverflow(Int(digit))
            guard !overflow, !carry else { throw RequestFailure(.badRequest, "Content-Length is too large a number") }
            length = sum
        }
        contentLength = length
    }

    /// Only a single `chunked` is understood.
    mutating func readTransferEncoding(_ value: UnsafeRawBufferPointer) throws(RequestFailure) {
        guard !isChunked else {
            throw RequestFailure(.badRequest, "Transfer-Encoding names chunked and then something else")
        }
        var isKnown = true
        var codings = 0
        value.forEachListElement { coding in
            codings += 1
            if !coding.equalsIgnoringCase("chunked") { isKnown = false }
        }
        guard codings > 0 else { throw RequestFailure(.badRequest, "Transfer-Encoding is empty") }
        guard isKnown else { throw RequestFailure(.notImplemented, "the only transfer coding known here is chunked") }
        guard codings == 1 else { throw RequestFailure(.badRequest, "Transfer-Encoding names chunked twice") }
        isChunked = true
    }

    /// RFC 9112 §6.1 and §6.3: both lengths given, or chunks from an HTTP/1.0 client, are signs of smuggling.
    func bodyLength(isVersion11: Bool) throws(RequestFailure) -> RequestHead.BodyLength {
        if isChunked {
            guard contentLength == nil else {
                throw RequestFailure(.badRequest, "both Content-Length and Transfer-Encoding are given")
            }
            guard isVersion11 else {
                throw RequestFailure(.badRequest, "HTTP/1.0 has no Transfer-Encoding")
            }
            return .chunked
        }
        guard let contentLength, contentLength > 0 else { return .none }
        return .fixed(contentLength)
    }

    func keepsAlive(isVersion11: Bool) -> Bool {
        !asksToClose && (isVersion11 || asksToKeepAlive)
    }
}

extension UnsafeRawBufferPointer {
    /// Calls `body` with each element of a comma-separated list, without white space, leaving out empty ones
    /// (RFC 9110 §5.6.1).
    func forEachListElement(_ body: (UnsafeRawBufferPointer) -> Void) {
        var start = 0
        while start <= count {
            var end = start
            while end < count, self[end] != UInt8(ascii: ",") { end += 1 }
            var from = start
            var to = end
            while from < to, self[from] == ByteClass.space || self[from] == ByteClass.tab { from += 1 }
            while to > from, self[to - 1] == ByteClass.space || self[to - 1] == ByteClass.tab { to -= 1 }
            if from < to { body(self[slice: from..<to]) }
            start = end + 1
        }
    }
}
