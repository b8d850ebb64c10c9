/// Base64 with the alphabet for URLs and without padding (RFC 7515 §2).
package enum Base64URL {
    /// Decodes a text. Accepts only what ``encode(_:)`` can return, so that different texts never decode to the same
    /// bytes.
    ///
    /// - Returns: `nil` if a character is not in the alphabet, if no encoding has this length, or if the last character
    ///   has bits set that belong to no byte.
    package static func decode(_ text: some Sequence<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.underestimatedCount / 4 * 3 + 3)
        // The bits that have been read but do not make a byte yet, and their number.
        var bits: UInt32 = 0
        var count = 0
        for character in text {
            let digit = digits[Int(character)]
            guard digit < 64 else { return nil }
            bits = bits << 6 | UInt32(digit)
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
                bits &= (1 << UInt32(count)) - 1
            }
        }
        // Up to 4 bits may remain from the last character, and ``encode(_:)`` fills these with zeros. If 6 bits remain,
        // the last character belongs to no byte.
        return count < 6 && bits == 0 ? bytes : nil
    }

    /// Returns the text of bytes.
    package static func encode(_ bytes: some Sequence<UInt8>) -> String {
        var text: [UInt8] = []
        append(bytes, to: &text)
        return String(decoding: text, as: UTF8.self)
    }

    /// Appends the text of bytes.
    package static func append(_ bytes: some Sequence<UInt8>, to text: inout [UInt8]) {
        // The bits that have been read but do not make a character yet, and their number.
        var bits: UInt32 = 0
        var count = 0
        for byte in bytes {
            bits = bits << 8 | UInt32(byte)
            count += 8
            while count >= 6 {
                count -= 6
                text.append(alphabet[Int(bits >> UInt32(count) & 63)])
            }
            bits &= (1 << UInt32(count)) - 1
        }
        if count > 0 { text.append(alphabet[Int(bits << UInt32(6 - count) & 63)]) }
    }

    /// The characters for the values from 0 to 63.
    static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)

    /// The value of each character; 64 for a character that is not in the alphabet.
    private static let digits = {
        var digits = [UInt8](repeating: 64, count: 256)
        for (value, character) in alphabet.enumerated() { digits[Int(character)] = UInt8(value) }
        return digits
    }()
}
