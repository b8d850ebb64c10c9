// Searches that look at eight bytes at once ("SIMD within a register"): a comparison sets bit 7 of the bytes of a word
// that match. For `word ^ (byte in each byte)`, a byte that matches is 0, and `(x - 1) & ~x` sets bit 7 of a byte that
// is 0. See Warren, Hacker's Delight, 2nd edition, §6-1.

extension UnsafeRawBufferPointer {
    /// Returns the position of the first byte that must be escaped in a JSON string: a quote, a backslash or a control
    /// character; `nil` if there is none.
    package func firstJSONEscape(from start: Int = 0) -> Int? {
        var position = start
        while position + 8 <= count {
            let word = loadUnaligned(fromByteOffset: position, as: UInt64.self).littleEndian
            // Sets bit 7 of a byte below 0x20, for which the subtraction borrows. `& ~word` excludes bytes beyond
            // ASCII.
            let controls = (word &- 0x20 * Self.ones) & ~word
            let quotes = Self.zeroBytes(word ^ UInt64(UInt8(ascii: "\"")) * Self.ones)
            let backslashes = Self.zeroBytes(word ^ UInt64(UInt8(ascii: "\\")) * Self.ones)
            let found = (controls | quotes | backslashes) & (0x80 * Self.ones)
            // A borrow may have marked wrong bytes after the first match, but never before it.
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

    /// Returns a word in which bit 7 of the lowest byte that is 0 is set; no bit 7 is set if no byte is 0.
    private static func zeroBytes(_ word: UInt64) -> UInt64 {
        (word &- ones) & ~word
    }
}
