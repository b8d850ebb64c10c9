/// Finds the body in a connection's input, by length or by chunks.
enum BodyReader {
    case fixed(remaining: Int)
    case chunked(ChunkedDecoder)

    /// The next piece of the body; bytes that only frame it are counted apart.
    mutating func next(_ bytes: UnsafeRawBufferPointer) throws(RequestFailure) -> ChunkedDecoder.Piece {
        switch self {
        case .fixed(let remaining):
            if remaining == 0 { return .end(framing: 0) }
            if bytes.isEmpty { return .needsMore(framing: 0) }
            let count = min(remaining, bytes.count)
            self = .fixed(remaining: remaining - count)
            return .data(framing: 0, data: count)
        case .chunked(var decoder):
            defer { self = .chunked(decoder) }
            return try decoder.next(bytes)
        }
    }
}
