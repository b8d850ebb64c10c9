/// A strong validator (RFC 9110 §8.8.3) made of a 64-bit number, sent as 16 hexadecimal digits in quotes.
///
/// A gzip-compressed body is another representation, and has another tag: the digits are followed by `-gzip`.
public struct EntityTag: Hashable, Sendable {
    public let value: UInt64

    public init(_ value: UInt64) {
        self.value = value
    }

    /// Hashes bytes to a tag that is the same in every process.
    ///
    /// Each step multiplies eight bytes and folds them into the next, so that every input bit affects every bit of the
    /// tag. The hash does not resist deliberate collisions.
    public init(hashing bytes: UnsafeRawBufferPointer) {
        // The constants are arbitrary 64-bit numbers with irregular bits. Other ones would change every tag.
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

    /// Reads the ``text`` of a tag, with or without ``compressedSuffix``.
    public init?(_ text: String) {
        var digits = text.dropFirst().dropLast()
        guard text.hasPrefix("\""), text.hasSuffix("\"") else { return nil }
        if digits.hasSuffix(Self.compressedSuffix) { digits = digits.dropLast(Self.compressedSuffix.count) }
        guard digits.utf8.count == 16, let value = UInt64(digits, radix: 16) else { return nil }
        self.init(value)
    }

    /// The tag of the plain representation as it is sent: 16 hexadecimal digits in quotes.
    public var text: String {
        let digits = String(value, radix: 16)
        return "\"" + String(repeating: "0", count: 16 - digits.utf8.count) + digits + "\""
    }

    /// The representation that a tag identifies.
    enum Form {
        case plain
        /// The gzip representation, whose tag ends with ``compressedSuffix``.
        case compressed
    }

    /// The text after the digits in the tag of a compressed representation.
    static let compressedSuffix = "-gzip"

    /// Whether a condition lists this tag (RFC 9110 §13.1), of the plain representation or of the compressed one.
    ///
    /// - Parameters:
    ///   - condition: the value of `If-None-Match` or `If-Match`.
    ///   - weakly: whether `W/` is ignored, as for `If-None-Match`.
    public func isListed(in condition: String, weakly: Bool = true) -> Bool {
        listedForm(in: condition, weakly: weakly) != nil
    }

    /// Returns which form of this tag a condition lists.
    ///
    /// - Parameter includesCompressed: whether the tag of the compressed representation counts.
    func listedForm(in condition: String, weakly: Bool = true, includesCompressed: Bool = true) -> Form? {
        if condition == "*" { return .plain }
        // A tag of another server may contain commas, and is then split. None of its parts equals this tag, which has
        // two quotation marks, because a tag contains none within (RFC 9110 §8.8.3).
        for element in condition.utf8.split(separator: UInt8(ascii: ",")) {
            let isBlank = { (byte: UInt8) in byte == ByteClass.space || byte == ByteClass.tab }
            let end = element.lastIndex { !isBlank($0) }.map(element.index(after:)) ?? element.endIndex
            let tag = element[..<end].drop(while: isBlank)
            let strong = weakly && tag.starts(with: "W/".utf8) ? tag.dropFirst(2) : tag
            if strong.elementsEqual(text.utf8) { return .plain }
            let compressed = text.dropLast() + Self.compressedSuffix + "\""
            if includesCompressed, strong.elementsEqual(compressed.utf8) { return .compressed }
        }
        return nil
    }
}
