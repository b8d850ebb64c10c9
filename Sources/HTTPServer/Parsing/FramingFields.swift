/// The header fields that determine where a message ends and whether its connection stays open (RFC 9112 §6 and §9).
/// ``RequestHeadParser`` passes each of these fields to it, and reads the result at the end of the header.
struct FramingFields {
    private var contentLength: Int?
    private var isChunked = false
    private var asksToClose = false
    private var asksToKeepAlive = false

    /// Parses the options of a `Connection` field. Options other than `close` and `keep-alive` do not concern this
    /// server.
    mutating func parseConnection(_ value: UnsafeRawBufferPointer) {
        value.forEachListElement { option in
            if option.equalsIgnoringCase("close") { asksToClose = true }
            if option.equalsIgnoringCase("keep-alive") { asksToKeepAlive = true }
        }
    }

    /// Accepts a decimal number without sign. A second field is refused, even with the same number: proxies may
    /// disagree on which one counts.
    mutating func parseContentLength(_ value: UnsafeRawBufferPointer) throws(RequestFailure) {
        guard contentLength == nil else {
            throw RequestFailure(.badRequest, "a request must have at most one Content-Length field; got several")
        }
        guard !value.isEmpty else {
            throw RequestFailure(.badRequest, "Content-Length must be a decimal number; got an empty value")
        }
        var length = 0
        for byte in value {
            let digit = byte &- UInt8(ascii: "0")
            guard digit < 10 else {
                throw RequestFailure(.badRequest, "Content-Length must be a decimal number; got the byte \(byte)")
            }
            let (shifted, overflow) = length.multipliedReportingOverflow(by: 10)
            let (sum, carry) = shifted.addingReportingOverflow(Int(digit))
            guard !overflow, !carry else {
                throw RequestFailure(.badRequest, "Content-Length must be at most \(Int.max)")
            }
            length = sum
        }
        contentLength = length
    }

    /// Accepts only a single `chunked`.
    mutating func parseTransferEncoding(_ value: UnsafeRawBufferPointer) throws(RequestFailure) {
        guard !isChunked else {
            throw RequestFailure(.badRequest, "a request must have at most one Transfer-Encoding field; got several")
        }
        var isKnown = true
        var codings = 0
        value.forEachListElement { coding in
            codings += 1
            if !coding.equalsIgnoringCase("chunked") { isKnown = false }
        }
        guard codings > 0 else {
            throw RequestFailure(.badRequest, "Transfer-Encoding must be chunked; got an empty value")
        }
        guard isKnown else {
            throw RequestFailure(.notImplemented, "Transfer-Encoding must be chunked; got another coding")
        }
        guard codings == 1 else {
            throw RequestFailure(.badRequest, "Transfer-Encoding must name chunked once; got it \(codings) times")
        }
        isChunked = true
    }

    /// Returns how the end of the body is found. Two lengths, or chunks from an HTTP/1.0 client, may be an attempt at
    /// request smuggling (RFC 9112 §6.1 and §6.3).
    func bodyLength(isVersion11: Bool) throws(RequestFailure) -> RequestHead.BodyLength {
        if isChunked {
            guard contentLength == nil else {
                throw RequestFailure(.badRequest, "a request must have Content-Length or Transfer-Encoding; got both")
            }
            guard isVersion11 else {
                throw RequestFailure(.badRequest, "a request with Transfer-Encoding must be HTTP/1.1; got HTTP/1.0")
            }
            return .chunked
        }
        guard let contentLength, contentLength > 0 else { return .none }
        return .fixed(contentLength)
    }

    /// Whether the connection stays open after the response: by default in HTTP/1.1, on demand in HTTP/1.0.
    func keepsAlive(isVersion11: Bool) -> Bool {
        !asksToClose && (isVersion11 || asksToKeepAlive)
    }
}

extension UnsafeRawBufferPointer {
    /// Calls `body` with each non-empty element of a comma-separated list, trimmed (RFC 9110 §5.6.1).
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
