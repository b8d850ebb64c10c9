/// Finds the body of a request in a connection's input (RFC 9112 §6): `Content-Length` gives its length, or it is sent
/// in chunks.
enum BodyDecoder {
    case fixed(remaining: Int)
    case chunked(ChunkedDecoder)

    /// Returns the next piece of the body at the start of `bytes`. The caller removes the piece before the next call.
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

/// Decodes the chunked transfer coding (RFC 9112 §7.1) from pieces of any size.
///
/// ```
/// 5;name=value CR LF     size in hexadecimal digits, and extensions, which are ignored
/// hello CR LF            data
/// 0 CR LF                last chunk
/// Name: value CR LF      trailer, which is ignored
/// CR LF
/// ```
///
/// All bytes but the data are called framing. The body is the data of all chunks.
struct ChunkedDecoder {
    /// The kind of the bytes at the reading position.
    enum Piece: Equatable {
        /// More bytes are needed, after dropping `framing` bytes.
        case needsMore(framing: Int)
        /// `framing` bytes to drop, then `data` bytes of the body.
        case data(framing: Int, data: Int)
        /// The body ends after `framing` more bytes.
        case end(framing: Int)
    }

    /// The part of the chunk to which the next byte belongs. `value` is the size of the chunk, `length` the number of
    /// bytes of its extensions so far.
    private enum State: Equatable {
        case size(digits: Int, value: Int)
        case spaceBeforeExtension(value: Int, length: Int)
        case extensions(value: Int, length: Int)
        case sizeLineFeed(value: Int)
        case data(remaining: Int)
        case dataCarriageReturn
        case dataLineFeed
        case trailer
    }

    private var state = State.size(digits: 0, value: 0)
    /// The bytes of the trailer section so far.
    private var trailerLength = 0
    /// Limit of the trailer section, and of the extensions of one chunk, in bytes.
    private let maximumFraming: Int

    /// Limit of the digits of a chunk size. More digits could overflow the value.
    private static let maximumDigits = 15

    init(maximumFraming: Int) {
        self.maximumFraming = maximumFraming
    }

    /// Returns the next piece at the start of `bytes`. The caller removes the piece before the next call.
    mutating func next(_ bytes: UnsafeRawBufferPointer) throws(RequestFailure) -> Piece {
        var index = 0
        while index < bytes.count {
            if case .data(let remaining) = state {
                let available = min(remaining, bytes.count - index)
                state = available == remaining ? .dataCarriageReturn : .data(remaining: remaining - available)
                return .data(framing: index, data: available)
            }
            if state == .trailer {
                guard let length = try trailerLine(bytes[slice: index..<bytes.count]) else {
                    return .needsMore(framing: index)
                }
                index += length
                // CR LF alone is the empty line at the end.
                if length == 2 { return .end(framing: index) }
                continue
            }
            try step(bytes[index])
            index += 1
        }
        return .needsMore(framing: index)
    }

    /// Advances the state by one byte of framing outside the trailer.
    private mutating func step(_ byte: UInt8) throws(RequestFailure) {
        switch state {
        case .size(let digits, let value):
            try sizeByte(byte, digits: digits, value: value)
        case .spaceBeforeExtension(let value, let length):
            try spaceByte(byte, value: value, length: length)
        case .extensions(let value, let length):
            if byte == ByteClass.carriageReturn {
                state = .sizeLineFeed(value: value)
            } else {
                guard ByteClass.isFieldValue(byte) else {
                    throw bad("a chunk extension must not contain control characters; got the byte \(byte)")
                }
                guard length < maximumFraming else { throw extensionTooLong }
                state = .extensions(value: value, length: length + 1)
            }
        case .sizeLineFeed(let value):
            guard byte == ByteClass.lineFeed else { throw bad("a chunk size must end with CR LF; got CR alone") }
            state = value == 0 ? .trailer : .data(remaining: value)
        case .dataCarriageReturn:
            guard byte == ByteClass.carriageReturn else {
                throw bad("a chunk must be as long as its size says; got more bytes")
            }
            state = .dataLineFeed
        case .dataLineFeed:
            guard byte == ByteClass.lineFeed else { throw bad("a chunk must end with CR LF; got CR alone") }
            state = .size(digits: 0, value: 0)
        case .data, .trailer:
            preconditionFailure("data and trailer lines are not read byte by byte")
        }
    }

    private mutating func sizeByte(_ byte: UInt8, digits: Int, value: Int) throws(RequestFailure) {
        if let digit = ByteClass.hexadecimalValue(byte) {
            guard digits < Self.maximumDigits else {
                throw bad("a chunk size must have at most \(Self.maximumDigits) hexadecimal digits")
            }
            state = .size(digits: digits + 1, value: value << 4 | Int(digit))
            return
        }
        guard digits > 0 else { throw bad("a chunk size must be a hexadecimal number; got the byte \(byte)") }
        switch byte {
        case ByteClass.carriageReturn: state = .sizeLineFeed(value: value)
        case UInt8(ascii: ";"): state = .extensions(value: value, length: 0)
        case ByteClass.space, ByteClass.tab: state = .spaceBeforeExtension(value: value, length: 1)
        default: throw bad("a chunk size must be a hexadecimal number; got the byte \(byte)")
        }
    }

    /// White space may precede an extension (RFC 9112 §7.1.1), but not the end of the line.
    private mutating func spaceByte(_ byte: UInt8, value: Int, length: Int) throws(RequestFailure) {
        switch byte {
        case UInt8(ascii: ";"): state = .extensions(value: value, length: length)
        case ByteClass.space, ByteClass.tab:
            guard length < maximumFraming else { throw extensionTooLong }
            state = .spaceBeforeExtension(value: value, length: length + 1)
        default: throw bad("white space after a chunk size must precede an extension; got the byte \(byte)")
        }
    }

    /// Checks the trailer line at the start of `bytes`. Trailer fields are ignored, because no handler uses them.
    ///
    /// - Returns: its length with CR LF; 2 for the empty line that ends the message, `nil` if it is incomplete.
    private mutating func trailerLine(_ bytes: UnsafeRawBufferPointer) throws(RequestFailure) -> Int? {
        guard let lineFeed = bytes.firstIndex(of: ByteClass.lineFeed) else {
            guard bytes.count + trailerLength <= maximumFraming else { throw trailerTooLong }
            return nil
        }
        trailerLength += lineFeed + 1
        guard trailerLength <= maximumFraming else { throw trailerTooLong }
        guard lineFeed > 0, bytes[lineFeed - 1] == ByteClass.carriageReturn else {
            throw bad("a trailer line must end with CR LF; got LF alone")
        }
        if lineFeed > 1 { _ = try FieldLine.parse(0..<(lineFeed - 1), bytes) }
        return lineFeed + 1
    }

    private var extensionTooLong: RequestFailure {
        bad("a chunk extension must be at most \(maximumFraming) bytes long")
    }

    private var trailerTooLong: RequestFailure {
        RequestFailure(.requestHeaderFieldsTooLarge, "the trailer must be at most \(maximumFraming) bytes long")
    }

    private func bad(_ detail: String) -> RequestFailure {
        RequestFailure(.badRequest, detail)
    }
}
