/// A strong validator (RFC 9110 §8.8.3) made from a 64-bit number, sent as 16 hexadecimal digits in quotes.
public struct EntityTag: Hashable, Sendable {
    public let value: UInt64

    public init(_ value: UInt64) {
        self.value = value
    }

    /// The tag of these bytes (FNV-1a, 64 bit): equal bytes have equal tags in every process and release.
    public init(hashing bytes: UnsafeRawBufferPointer) {
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        for byte in bytes {
            hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01B3
        }
        value = hash
    }

    public var text: String {
        let digits = String(value, radix: 16)
        return "\"" + String(repeating: "0", count: 16 - digits.utf8.count) + digits + "\""
    }

    /// Whether an `If-None-Match` value names this tag, by weak comparison (RFC 9110 §13.1.2).
    func isListed(in ifNoneMatch: String) -> Bool {
        if ifNoneMatch == "*" { return true }
        return ifNoneMatch.split(separator: ",").contains { element in
            let tag = element.drop { $0 == " " || $0 == "\t" }
            return (tag.hasPrefix("W/") ? tag.dropFirst(2) : tag).prefix(18) == text
        }
    }
}
