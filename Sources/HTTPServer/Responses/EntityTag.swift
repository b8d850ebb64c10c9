/// A strong validator (RFC 9110 §8.8.3) made from a 64-bit number, sent as 16 hexadecimal digits in quotes.
public struct EntityTag: Hashable, Sendable {
    public let value: UInt64

    public init(_ value: UInt64) {
        self.value = value
    }

    /// The tag of these bytes: equal bytes have equal tags in every process.
    ///
    /// Eight bytes a step, each multiplied and folded into the next, so that every bit of the input reaches every bit
    /// of the tag. Not made to withstand somebody who looks for two bodies with one tag.
    public init(hashing bytes: UnsafeRawBufferPointer) {
        var hash = UInt64(truncatingIfNeeded: bytes.count) ^ 0x9E37_79B9_7F4A_7C15
        func mix(_ word: UInt64) {
            let (high, low) = (hash ^ word).multipliedFullWidth(by: 0xD6E8_FEB8_6659_FD93)
            hash = (hash << 23 | hash >> 41) &+ (high ^ low)
        }
        var offset = 0
        while offset + 8 <= bytes.count {
            mix(bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            offset += 8
        }
        var rest: UInt64 = 0
        while offset < bytes.count {
            rest = rest << 8 | UInt64(bytes[offset])
            offset += 1
        }
        mix(rest)
        mix(0x2545_F491_4F6C_DD1D)
        value = hash
    }

    public var text: String {
        let digits = String(value, radix: 16)
        return "\"" + String(repeating: "0", count: 16 - digits.utf8.count) + digits + "\""
    }

    /// Whether the value of an `If-None-Match` names this tag, or, by strong comparison, that of an `If-Match`
    /// (RFC 9110 §13.1).
    public func isListed(in condition: String, weakly: Bool = true) -> Bool {
        if condition == "*" { return true }
        return condition.split(separator: ",").contains { element in
            let tag = element.drop { $0 == " " || $0 == "\t" }
            return (weakly && tag.hasPrefix("W/") ? tag.dropFirst(2) : tag).prefix(18) == text
        }
    }
}
