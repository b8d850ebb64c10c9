import Glibc

/// Encodes responses as bytes (RFC 9112 §4 to §7), and decides which responses become 304 or have no body.
package enum ResponseEncoder {
    /// How the client finds the end of the body.
    enum Framing {
        case length
        case chunked
        /// The body ends with the connection, because HTTP/1.0 has no chunks.
        case close
    }

    /// Writes the whole response, or only the head of a streamed one.
    ///
    /// - Returns: the status that was sent, and the framing of a streamed body. With `.length` no pieces must follow.
    @inline(__always)
    static func encode(
        _ response: borrowing Response, to request: borrowing PendingRequest, date: [UInt8],
        into output: inout OutputQueue
    ) -> (status: Status, framing: Framing) {
        let (status, framing) = encodeHead(response, to: request, date: date, into: &output.bytes)
        if case .bytes(let bytes) = response.body, !request.isHead, !status.forbidsBody { output.append(body: bytes) }
        return (status, framing)
    }

    @inline(__always)
    private static func encodeHead(
        _ response: borrowing Response, to request: borrowing PendingRequest, date: [UInt8],
        into output: inout ByteBuffer
    ) -> (status: Status, framing: Framing) {
        let isUnchanged = isNotModified(response, request)
        let status = isUnchanged ? .notModified : response.status
        output.reserve(512)
        output.append("HTTP/1.1 ")
        output.append(decimal: Int(status.code))
        output.append(UInt8(ascii: " "))
        output.append(status.reason)
        output.append("\r\n")
        output.append(date)
        if let type = response.contentType, !isUnchanged {
            output.append("Content-Type: ")
            output.append(type)
            output.append("\r\n")
        }
        if let tag = response.entityTag {
            output.append("ETag: \"")
            output.append(hexadecimal: tag.value, width: 16)
            if sendsCompressedTag(of: response, status, to: request) { output.append(EntityTag.compressedSuffix) }
            output.append("\"\r\n")
        }
        for field in response.fields { append(field, to: &output) }
        for field in request.fields { append(field, to: &output) }
        output.append("X-Request-Id: ")
        request.id.append(to: &output)
        output.append("\r\n")
        return (status, encodeFraming(of: response.body, status: status, to: request, into: &output))
    }

    @inline(__always)
    private static func encodeFraming(
        of body: Response.Body, status: Status, to request: borrowing PendingRequest, into output: inout ByteBuffer
    ) -> Framing {
        var framing = Framing.length
        switch body {
        case .stream where !status.forbidsBody:
            framing = request.isVersion11 ? .chunked : .close
            if framing == .chunked { output.append("Transfer-Encoding: chunked\r\n") }
        case .bytes(let bytes) where !status.forbidsBody:
            append(contentLength: bytes.count, to: &output)
        case .empty where !status.forbidsBody:
            append(contentLength: 0, to: &output)
        case .bytes, .empty, .stream:
            break
        }
        // A response to `HEAD` ends with its head, so no pieces follow.
        if request.isHead { framing = .length }
        if !request.keepsAlive || framing == .close {
            output.append("Connection: close\r\n")
        } else if !request.isVersion11 {
            output.append("Connection: keep-alive\r\n")
        }
        output.append("\r\n")
        return framing
    }

    /// Whether a response is sent with its body: not to `HEAD`, not as 304, and not with a status that forbids it.
    package static func sendsBody(of response: borrowing Response, to request: borrowing PendingRequest) -> Bool {
        !request.isHead && !response.status.forbidsBody && !isNotModified(response, request)
    }

    /// Writes a piece of a streamed body.
    static func encodeChunk(_ bytes: [UInt8], framing: Framing, into output: inout OutputQueue) {
        guard !bytes.isEmpty else { return }
        guard framing == .chunked else { return output.append(body: bytes) }
        output.bytes.append(hexadecimal: UInt64(bytes.count))
        output.bytes.append("\r\n")
        output.append(body: bytes)
        output.bytes.append("\r\n")
    }

    private static func append(contentLength: Int, to output: inout ByteBuffer) {
        output.append("Content-Length: ")
        output.append(decimal: contentLength)
        output.append("\r\n")
    }

    private static func append(_ field: (name: StaticString, value: String), to output: inout ByteBuffer) {
        guard field.value.utf8.allSatisfy(ByteClass.isFieldValue) else { return }
        output.append(field.name)
        output.append(": ")
        output.append(field.value)
        output.append("\r\n")
    }

    /// Returns the status that is sent: 304 if the client's `If-None-Match` lists the entity tag.
    package static func status(of response: borrowing Response, to request: borrowing PendingRequest) -> Status {
        isNotModified(response, request) ? .notModified : response.status
    }

    /// Whether the response becomes 304, because the client has the current representation (RFC 9110 §13.1.2).
    static func isNotModified(_ response: borrowing Response, _ request: borrowing PendingRequest) -> Bool {
        response.status == .ok && listedForm(response, request) != nil
    }

    /// Returns the form of the entity tag that `If-None-Match` lists. The compressed form does not count for a client
    /// that no longer accepts gzip, because a 304 would make it use a cached compressed representation.
    private static func listedForm(
        _ response: borrowing Response, _ request: borrowing PendingRequest
    ) -> EntityTag.Form? {
        guard let condition = request.ifNoneMatch, let tag = response.entityTag else { return nil }
        return tag.listedForm(in: condition, includesCompressed: request.acceptsGzip)
    }

    /// Whether to send the tag of the compressed representation. A 304 has the tag of the representation that the
    /// client has.
    @inline(__always)
    private static func sendsCompressedTag(
        of response: borrowing Response, _ status: Status, to request: borrowing PendingRequest
    ) -> Bool {
        status == .notModified ? listedForm(response, request) == .compressed : response.isCompressed
    }
}

/// Keeps the `Date` field (RFC 9110 §6.6.1), which is formatted only once a second.
struct DateCache {
    private var second: time_t = -1
    private(set) var line: [UInt8] = []

    mutating func refresh() {
        let now = time(nil)
        guard now != second else { return }
        second = now
        line = Array("Date: \(HTTPDate.text(secondsSince1970: Int64(now)))\r\n".utf8)
    }
}

/// Dates in header fields (RFC 9110 §5.6.7).
public enum HTTPDate {
    /// Returns a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
    public static func text(secondsSince1970: Int64) -> String {
        var seconds = time_t(secondsSince1970)
        var parts = tm()
        gmtime_r(&seconds, &parts)
        let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        func padded(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
        let date =
            "\(days[Int(parts.tm_wday)]), \(padded(parts.tm_mday)) \(months[Int(parts.tm_mon)]) \(Int(parts.tm_year) + 1900)"
        return "\(date) \(padded(parts.tm_hour)):\(padded(parts.tm_min)):\(padded(parts.tm_sec)) GMT"
    }
}
