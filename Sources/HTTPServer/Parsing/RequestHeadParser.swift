import Glibc

/// Parses request heads strictly by RFC 9112. It refuses forms that a server may tolerate, but that attackers use to
/// smuggle requests: bare CR or LF, folded lines, white space before a colon.
///
/// Bytes may arrive in any pieces. `scanned` is the position up to which line ends were searched, so a head sent byte
/// by byte costs no more than one sent at once.
package struct RequestHeadParser {
    /// Limit of the request line and all field lines in bytes.
    let maximumLength: Int
    /// Limit of the number of field lines.
    let maximumFields: Int

    private var scanned = 0
    /// The position of the first line that has not been parsed.
    private var lineStart = 0
    /// The part of the head that has been parsed so far.
    package private(set) var head = RequestHead()
    private var hasRequestLine = false
    private var hostCount = 0
    private var framing = FramingFields()

    package init(maximumLength: Int, maximumFields: Int) {
        self.maximumLength = maximumLength
        self.maximumFields = maximumFields
    }

    /// Prepares for the next head, and keeps the memory.
    mutating func reset() {
        var fields = head.fields
        fields.removeAll(keepingCapacity: true)
        head = RequestHead()
        head.fields = fields
        scanned = 0
        lineStart = 0
        hasRequestLine = false
        hostCount = 0
        framing = FramingFields()
    }

    /// Whether a part of a head has been parsed.
    var hasBegun: Bool { scanned > 0 }

    /// Continues parsing.
    ///
    /// - Parameter bytes: all bytes so far, from the start of the head.
    /// - Returns: the complete head; `nil` if more bytes are needed.
    package mutating func parse(_ bytes: UnsafeRawBufferPointer) throws(RequestFailure) -> RequestHead? {
        // Bytes of another protocol, such as TLS, may never have a line end to wait for.
        if !hasRequestLine, lineStart == 0, let first = bytes.first,
            first != ByteClass.carriageReturn, !ByteClass.isToken(first)
        {
            throw RequestFailure(.badRequest, "a request must begin with a method; got the byte \(first)")
        }
        while let lineFeed = nextLineFeed(bytes) {
            guard lineFeed < maximumLength else { throw tooLong }
            guard lineFeed > lineStart, bytes[lineFeed - 1] == ByteClass.carriageReturn else {
                throw RequestFailure(.badRequest, "a line must end with CR LF; got LF alone")
            }
            let line = lineStart..<(lineFeed - 1)
            lineStart = lineFeed + 1
            if line.isEmpty {
                // Empty lines before the request line are ignored (RFC 9112 §2.2).
                guard hasRequestLine else { continue }
                try finish()
                head.length = lineStart
                return head
            }
            if hasRequestLine {
                try parseField(line, bytes)
            } else {
                try parseRequestLine(line, bytes)
                hasRequestLine = true
            }
        }
        if bytes.count >= maximumLength { throw tooLong }
        return nil
    }

    /// Returns the position of the next line end; `nil` if it has not arrived yet.
    private mutating func nextLineFeed(_ bytes: UnsafeRawBufferPointer) -> Int? {
        guard scanned < bytes.count, let base = bytes.baseAddress else { return nil }
        guard let found = memchr(base + scanned, Int32(ByteClass.lineFeed), bytes.count - scanned) else {
            scanned = bytes.count
            return nil
        }
        let position = UnsafeRawPointer(found) - base
        scanned = position + 1
        return position
    }

    private var tooLong: RequestFailure {
        hasRequestLine
            ? RequestFailure(.requestHeaderFieldsTooLarge, "the header must be at most \(maximumLength) bytes long")
            : RequestFailure(.uriTooLong, "the request line must be at most \(maximumLength) bytes long")
    }

    // MARK: Request line (RFC 9112 §3)

    private mutating func parseRequestLine(_ line: Range<Int>, _ bytes: UnsafeRawBufferPointer) throws(RequestFailure) {
        let text = bytes[slice: line]
        guard let methodEnd = text.firstIndex(of: ByteClass.space), methodEnd > 0,
            let versionStart = text.lastIndex(of: ByteClass.space), versionStart > methodEnd
        else {
            throw RequestFailure(.badRequest, "the request line must be 'METHOD TARGET HTTP/1.1'")
        }
        guard text[..<methodEnd].allSatisfy(ByteClass.isToken) else {
            throw RequestFailure(.badRequest, "the method must be a token (RFC 9110 §5.6.2)")
        }
        try parseVersion(text[slice: versionStart + 1..<text.count])
        guard let method = Method(text[slice: 0..<methodEnd]) else {
            throw RequestFailure(.notImplemented, "the server does not support this method")
        }
        head.method = method
        let target = RequestTarget(text[slice: methodEnd + 1..<versionStart], method: method)
        let (path, query) = try target.pathAndQuery()
        let offset = line.lowerBound + methodEnd + 1
        head.path = path.lowerBound + offset..<path.upperBound + offset
        head.query = query.lowerBound + offset..<query.upperBound + offset
    }

    private mutating func parseVersion(_ text: UnsafeRawBufferPointer) throws(RequestFailure) {
        func isDigit(_ byte: UInt8) -> Bool { byte &- UInt8(ascii: "0") < 10 }
        guard text.count == 8, text[slice: 0..<5].equals("HTTP/"), text[6] == UInt8(ascii: "."),
            isDigit(text[5]), isDigit(text[7])
        else {
            throw RequestFailure(.badRequest, "the request line must end with an HTTP version such as HTTP/1.1")
        }
        guard text[5] == UInt8(ascii: "1") else {
            throw RequestFailure(.httpVersionNotSupported, "the HTTP version must be 1.1 or 1.0")
        }
        head.isVersion11 = text[7] != UInt8(ascii: "0")
        head.keepsAlive = head.isVersion11
    }

    // MARK: Fields (RFC 9112 §5)

    private mutating func parseField(_ line: Range<Int>, _ bytes: UnsafeRawBufferPointer) throws(RequestFailure) {
        guard head.fields.count < maximumFields else {
            throw RequestFailure(
                .requestHeaderFieldsTooLarge, "a request must have at most \(maximumFields) header fields")
        }
        let field = try FieldLine.parse(line, bytes)
        head.fields.append(field)
        try interpret(field, bytes)
    }

    /// Interprets a field that concerns the connection. Other fields are left to the handler.
    private mutating func interpret(
        _ field: RequestHead.Field, _ bytes: UnsafeRawBufferPointer
    ) throws(RequestFailure) {
        let name = bytes[slice: field.name]
        let value = bytes[slice: field.value]
        switch name.count {
        case 4 where name.equalsIgnoringCase("host"):
            hostCount += 1
            try checkHost(value)
        case 6 where name.equalsIgnoringCase("expect"):
            guard value.equalsIgnoringCase("100-continue") else {
                throw RequestFailure(.expectationFailed, "Expect must be 100-continue")
            }
            head.expectsContinue = true
        case 8 where name.equalsIgnoringCase("if-match"), 13 where name.equalsIgnoringCase("if-none-match"):
            head.isConditional = true
        case 10 where name.equalsIgnoringCase("connection"):
            framing.parseConnection(value)
        case 14 where name.equalsIgnoringCase("content-length"):
            try framing.parseContentLength(value)
        case 16 where name.equalsIgnoringCase("content-encoding"):
            head.isEncoded = true
        case 17 where name.equalsIgnoringCase("transfer-encoding"):
            try framing.parseTransferEncoding(value)
        default:
            break
        }
    }

    private func checkHost(_ value: UnsafeRawBufferPointer) throws(RequestFailure) {
        guard hostCount == 1 else {
            throw RequestFailure(.badRequest, "a request must have one Host field; got several")
        }
        guard value.allSatisfy(ByteClass.isHost) else {
            throw RequestFailure(.badRequest, "Host must be a host name or an address, and optionally a port")
        }
    }

    /// Completes the head after its empty line.
    private mutating func finish() throws(RequestFailure) {
        if head.isVersion11, hostCount == 0 {
            throw RequestFailure(.badRequest, "an HTTP/1.1 request must have a Host field")
        }
        head.body = try framing.bodyLength(isVersion11: head.isVersion11)
        head.keepsAlive = framing.keepsAlive(isVersion11: head.isVersion11)
        // HTTP/1.0 has no 100 (Continue), and a client without a body has nothing to continue with
        // (RFC 9110 §10.1.1).
        head.expectsContinue = head.expectsContinue && head.isVersion11 && head.body != .none
    }
}
