/// Looks at eight bytes of a JSON text at once.
extension UnsafeRawBufferPointer {
    /// Returns the position of the first byte that must be escaped in a JSON string: a quote, a backslash or a control
    /// character; `nil` if there is none.
    package func firstJSONEscape(from start: Int = 0) -> Int? {
        var position = start
        while position + 8 <= count {
            let word = loadUnaligned(fromByteOffset: position, as: UInt64.self).littleEndian
            let controls = (word &- 0x20 * Self.ones) & ~word
            let quotes = Self.zeroBytes(word ^ UInt64(UInt8(ascii: "\"")) * Self.ones)
            let backslashes = Self.zeroBytes(word ^ UInt64(UInt8(ascii: "\\")) * Self.ones)
            let found = (controls | quotes | backslashes) & (0x80 * Self.ones)
            // A borrow may have marked bytes above the first one, never below it.
            if found != 0 { return position + found.trailingZeroBitCount / 8 }
            position += 8
        }
        while position < count {
            let byte = self[position]
            if byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") { return position }
            position += 1
        }
        return nil
    }

    /// Whether all bytes are ASCII.
    package var isASCII: Bool {
        var position = 0
        var seenBits: UInt64 = 0
        while position + 8 <= count {
            seenBits |= loadUnaligned(fromByteOffset: position, as: UInt64.self)
            position += 8
        }
        while position < count {
            seenBits |= UInt64(self[position])
            position += 1
        }
        return seenBits & (0x80 * Self.ones) == 0
    }

    /// 1 in each byte of a word.
    private static var ones: UInt64 { 0x0101_0101_0101_0101 }

    /// Bit 7 of the lowest byte that is 0; of no byte if none is.
    private static func zeroBytes(_ word: UInt64) -> UInt64 {
        (word &- ones) & ~word
    }
}
