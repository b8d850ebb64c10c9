/// Compresses responses for the clients that accept gzip (RFC 9110 §8.4.1.3 and §12.5.3).
///
/// A short body is sent as it is. A long one is compressed piece by piece while it is sent, so that it does not block
/// the event loop. The entity tag of a compressed response ends with `-gzip`, because it is another representation.
public enum ContentCoding {
    /// The minimum length in bytes of a body that is compressed.
    static let minimumLength = 1_024
    /// The length of the pieces in which a long body is compressed: about a millisecond each.
    static let pieceLength = 64 * 1_024

    /// Whether a client prefers gzip.
    ///
    /// - Parameter acceptEncoding: the value of `Accept-Encoding`, of all its fields.
    public static func acceptsGzip(_ acceptEncoding: String) -> Bool {
        var accepted = acceptEncoding
        return accepted.withUTF8 { acceptsGzip(UnsafeRawBufferPointer($0)) }
    }

    /// Whether the weight of `gzip` is greater than 0 and at least that of `identity`. The weight of `*` applies to
    /// `gzip` if `gzip` is not listed. If a coding is listed twice, the last element counts.
    static func acceptsGzip(_ value: UnsafeRawBufferPointer) -> Bool {
        var gzip: Int?
        var identity: Int?
        var other: Int?
        var start = 0
        while start < value.count {
            let end = value[start...].firstIndex(of: UInt8(ascii: ",")) ?? value.count
            if let (name, weight) = element(value[slice: start..<end]) {
                if name.equalsIgnoringCase("gzip") || name.equalsIgnoringCase("x-gzip") {
                    gzip = weight
                } else if name.equalsIgnoringCase("identity") {
                    identity = weight
                } else if name.count == 1, name[0] == UInt8(ascii: "*") {
                    other = weight
                }
            }
            start = end + 1
        }
        let weight = gzip ?? other ?? 0
        return weight > 0 && weight >= identity ?? 0
    }

    /// Returns the name of a coding and its weight in thousandths; `nil` for an element that is not well-formed.
    private static func element(
        _ bytes: UnsafeRawBufferPointer
    ) -> (name: UnsafeRawBufferPointer, weight: Int)? {
        let end = bytes.firstIndex(of: UInt8(ascii: ";")) ?? bytes.count
        let name = trimmed(bytes[slice: 0..<end])
        guard !name.isEmpty else { return nil }
        guard end < bytes.count else { return (name, 1_000) }
        let parameter = trimmed(bytes[slice: end + 1..<bytes.count])
        guard parameter.count > 2, parameter[slice: 0..<2].equalsIgnoringCase("q=") else { return nil }
        return weight(parameter[slice: 2..<parameter.count]).map { (name, $0) }
    }

    /// Returns a weight such as `1`, `0.`, `0.5` or `0.125` in thousandths; `nil` if it is malformed (RFC 9110
    /// §12.4.2).
    private static func weight(_ bytes: UnsafeRawBufferPointer) -> Int? {
        guard bytes.count <= 5, bytes[0] == UInt8(ascii: "0") || bytes[0] == UInt8(ascii: "1"),
            bytes.count == 1 || bytes[1] == UInt8(ascii: ".")
        else { return nil }
        var weight = bytes[0] == UInt8(ascii: "1") ? 1_000 : 0
        var unit = 100
        for byte in bytes.dropFirst(2) {
            guard byte &- UInt8(ascii: "0") < 10 else { return nil }
            weight += Int(byte - UInt8(ascii: "0")) * unit
            unit /= 10
        }
        return min(weight, 1_000)
    }

    private static func trimmed(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        var start = 0
        var end = bytes.count
        while start < end, bytes[start] == ByteClass.space || bytes[start] == ByteClass.tab { start += 1 }
        while end > start, bytes[end - 1] == ByteClass.space || bytes[end - 1] == ByteClass.tab { end -= 1 }
        return bytes[slice: start..<end]
    }

    // MARK: Responses

    /// Compresses the body of a response at once, or makes it a stream whose pieces are to be compressed.
    ///
    /// - Returns: the compressor for the stream's pieces; `nil` if the response is sent as it is now.
    @inline(__always)
    static func apply(to response: inout Response, for request: borrowing PendingRequest) -> Gzip? {
        switch response.body {
        case .empty: return nil
        case .bytes(let bytes) where bytes.count < minimumLength: return nil
        case .bytes, .stream: return compress(&response, for: request)
        }
    }

    @inline(never)
    private static func compress(_ response: inout Response, for request: borrowing PendingRequest) -> Gzip? {
        guard !response.status.forbidsBody, isCompressible(response) else { return nil }
        // Caches must know that the response depends on the field, even if it is not compressed for this client
        // (RFC 9110 §12.5.5).
        response.fields.append(("Vary", "Accept-Encoding"))
        guard request.acceptsGzip, request.isVersion11, !ResponseEncoder.isNotModified(response, request) else {
            return nil
        }
        if case .bytes(let bytes) = response.body {
            guard bytes.count > pieceLength else {
                guard let compressed = Gzip.compress(bytes, .fast) else { return nil }
                response.body = .bytes(compressed)
                markCompressed(&response)
                return nil
            }
            response.body = .stream(Pieces(bytes))
        }
        guard let gzip = Gzip(.fast) else { return nil }
        markCompressed(&response)
        return gzip
    }

    private static func markCompressed(_ response: inout Response) {
        response.isCompressed = true
        response.fields.append(("Content-Encoding", "gzip"))
    }

    /// Whether the response is a text. Excludes event streams, whose pieces must arrive without delay, and responses
    /// that have chosen their own coding.
    private static func isCompressible(_ response: borrowing Response) -> Bool {
        guard let type = response.contentType.map({ $0.description.prefix { $0 != ";" } }), type != "text/event-stream",
            type.hasPrefix("text/") || (type.hasPrefix("application/") && type.contains("json"))
                || type.hasSuffix("+xml")
        else { return false }
        return !response.fields.contains { field in
            field.name.description == "Content-Encoding"
                || (field.name.description == "Vary" && field.value.contains("Accept-Encoding"))
        }
    }

    /// A stream of the pieces of a long body.
    private final class Pieces: ResponseStream {
        private let bytes: [UInt8]
        private var sent = 0

        init(_ bytes: [UInt8]) {
            self.bytes = bytes
        }

        func produce(_ writer: StreamWriter) {
            guard sent < bytes.count else { return writer.finish() }
            let end = min(bytes.count, sent + ContentCoding.pieceLength)
            let piece = Array(bytes[sent..<end])
            sent = end
            writer.write(piece)
        }
    }
}
