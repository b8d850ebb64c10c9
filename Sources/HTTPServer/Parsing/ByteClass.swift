/// Character classes of the HTTP grammar.
enum ByteClass {
    static let space = UInt8(ascii: " ")
    static let tab = UInt8(ascii: "\t")
    static let carriageReturn = UInt8(ascii: "\r")
    static let lineFeed = UInt8(ascii: "\n")
    static let colon = UInt8(ascii: ":")
    static let percent = UInt8(ascii: "%")

    /// `tchar` of RFC 9110 §5.6.2, one bit per ASCII character.
    private static let tokenLow: UInt64 = 0x03FF_6CFA_0000_0000
    private static let tokenHigh: UInt64 = 0x57FF_FFFF_C7FF_FFFE

    @inline(__always)
    static func isToken(_ byte: UInt8) -> Bool {
        guard byte < 128 else { return false }
        let mask = byte < 64 ? tokenLow : tokenHigh
        return (mask >> UInt64(byte & 63)) & 1 == 1
    }

    /// Characters of a field value: `VCHAR`, `obs-text`, space and tab (RFC 9110 §5.5).
    @inline(__always)
    static func isFieldValue(_ byte: UInt8) -> Bool {
        byte >= 0x20 ? byte != 0x7F : byte == tab
    }

    /// Visible ASCII, the characters of a request target.
    @inline(__always)
    static func isVisible(_ byte: UInt8) -> Bool {
        byte > 0x20 && byte < 0x7F
    }

    /// Characters of `host:port` (RFC 3986 §3.2.2), without the comma: that would be a list of hosts.
    static func isHost(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: ":"), UInt8(ascii: "["), UInt8(ascii: "]"), UInt8(ascii: "("), UInt8(ascii: ")"),
            UInt8(ascii: ";"), UInt8(ascii: "="):
            true
        case UInt8(ascii: "#"), UInt8(ascii: "^"), UInt8(ascii: "`"), UInt8(ascii: "|"):
            false
        default:
            isToken(byte)
        }
    }

    @inline(__always)
    static func lowercased(_ byte: UInt8) -> UInt8 {
        byte &- UInt8(ascii: "A") < 26 ? byte | 0x20 : byte
    }

    /// Returns the value of a hexadecimal digit; `nil` for another character.
    @inline(__always)
    static func hexadecimalValue(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): return byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): return byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): return byte - UInt8(ascii: "A") + 10
        default: return nil
        }
    }
}

extension UnsafeRawBufferPointer {
    /// The bytes in `range`, indexed from zero.
    @inline(__always)
    subscript(slice range: Range<Int>) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: self[range])
    }

    /// Compares ignoring the case of ASCII letters.
    ///
    /// - Parameter text: in lower case.
    @inline(__always)
    func equalsIgnoringCase(_ text: StaticString) -> Bool {
        guard count == text.utf8CodeUnitCount else { return false }
        for index in 0..<count where ByteClass.lowercased(self[index]) != text.utf8Start[index] {
            return false
        }
        return true
    }

    @inline(__always)
    func equals(_ text: StaticString) -> Bool {
        guard count == text.utf8CodeUnitCount else { return false }
        for index in 0..<count where self[index] != text.utf8Start[index] {
            return false
        }
        return true
    }
}
