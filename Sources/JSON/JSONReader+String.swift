extension JSONReader {
    /// Reads a string from its opening to its closing quote.
    mutating func string() throws(JSONError) -> String {
        position += 1
        let start = position
        let isASCII = skipPlainBytes()
        if current == UInt8(ascii: "\"") {
            let contents = UnsafeRawBufferPointer(rebasing: bytes[start..<position])
            // UTF-8 validation costs several times as much as decoding, and most texts are ASCII.
            let text = isASCII ? String(decoding: contents, as: UTF8.self) : try validated(contents, from: start)
            position += 1
            return text
        }
        return try stringWithEscapes(from: start)
    }

    /// Skips to the next quote, backslash, control character or the end.
    ///
    /// - Returns: whether all skipped bytes are ASCII.
    @discardableResult
    private mutating func skipPlainBytes() -> Bool {
        let start = position
        position = bytes.firstJSONEscape(from: start) ?? bytes.count
        return UnsafeRawBufferPointer(rebasing: bytes[start..<position]).isASCII
    }

    /// Reads the rest of a string that has an escape.
    ///
    /// - Parameter start: the position after the opening quote. The bytes from there to ``position`` need no decoding.
    private mutating func stringWithEscapes(from start: Int) throws(JSONError) -> String {
        var unescaped: [UInt8] = []
        var runStart = start
        while true {
            unescaped.append(contentsOf: bytes[runStart..<position])
            switch current {
            case UInt8(ascii: "\""):
                // Escapes are ASCII, so the unescaped text is valid UTF-8 if the text with the escapes is.
                _ = try validated(UnsafeRawBufferPointer(rebasing: bytes[start..<position]), from: start)
                position += 1
                return String(decoding: unescaped, as: UTF8.self)
            case UInt8(ascii: "\\"):
                UTF8.encode(try escape()).map { unescaped.append(contentsOf: $0) }
            case _ where position == bytes.count:
                throw failure("expected a double quote that ends the string")
            default:
                throw failure("a control character must be escaped in a string")
            }
            runStart = position
            skipPlainBytes()
        }
    }

    /// Reads an escape from its backslash; for a surrogate pair, both escapes.
    private mutating func escape() throws(JSONError) -> Unicode.Scalar {
        let start = position
        position += 2
        switch start + 1 < bytes.count ? bytes[start + 1] : 0 {
        case UInt8(ascii: "\""): return "\""
        case UInt8(ascii: "\\"): return "\\"
        case UInt8(ascii: "/"): return "/"
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{C}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"): return try unicodeEscape(from: start)
        default: throw JSONError("expected an escape that JSON knows", offset: start)
        }
    }

    /// Reads the four digits after `\u`, and the second escape of a surrogate pair.
    private mutating func unicodeEscape(from start: Int) throws(JSONError) -> Unicode.Scalar {
        let unit = try hexadecimalDigits()
        if let scalar = Unicode.Scalar(unit) { return scalar }
        // A high surrogate (0xD800 to 0xDBFF) must be followed by the escape of a low one (0xDC00 to 0xDFFF).
        if unit < 0xDC00, current == UInt8(ascii: "\\"),
            position + 1 < bytes.count, bytes[position + 1] == UInt8(ascii: "u")
        {
            position += 2
            let second = try hexadecimalDigits()
            if (0xDC00..<0xE000).contains(second),
                let scalar = Unicode.Scalar(0x10000 + (UInt32(unit - 0xD800) << 10 | UInt32(second - 0xDC00)))
            {
                return scalar
            }
        }
        throw JSONError("expected both halves of an escaped surrogate pair", offset: start)
    }

    /// Reads four hexadecimal digits.
    private mutating func hexadecimalDigits() throws(JSONError) -> UInt16 {
        var unit: UInt16 = 0
        for _ in 0..<4 {
            let byte = current
            let digit: UInt8
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = byte - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "f"): digit = byte - UInt8(ascii: "a") + 10
            case UInt8(ascii: "A")...UInt8(ascii: "F"): digit = byte - UInt8(ascii: "A") + 10
            default: throw failure("expected four hexadecimal digits")
            }
            unit = unit << 4 | UInt16(digit)
            position += 1
        }
        return unit
    }

    /// Decodes UTF-8.
    ///
    /// - Parameter start: the position of the buffer in the text, for the error.
    private func validated(_ buffer: UnsafeRawBufferPointer, from start: Int) throws(JSONError) -> String {
        guard let text = String(validating: buffer, as: UTF8.self) else {
            throw JSONError("expected UTF-8", offset: start + Self.validPrefix(of: buffer))
        }
        return text
    }

    /// Returns the number of bytes before the first one that is not valid UTF-8.
    private static func validPrefix(of buffer: UnsafeRawBufferPointer) -> Int {
        var decoder = UTF8()
        var iterator = buffer.makeIterator()
        var length = 0
        while case .scalarValue(let scalar) = decoder.decode(&iterator) {
            length += UTF8.width(scalar)
        }
        return length
    }
}
