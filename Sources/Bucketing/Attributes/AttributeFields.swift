/// Walks the fields of an ``AttributeRecord`` where its bytes lie, trusting none of them: what cannot be read ends
/// the walk.
struct AttributeFields {
    private let bytes: UnsafeRawBufferPointer
    private var position = 1

    /// - Returns: `nil` for a format that this program does not know.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.first == AttributeRecord.version else { return nil }
        self.bytes = bytes
    }

    /// The field of one attribute.
    func field(_ number: UInt32) -> AttributeField? {
        var walk = self
        while let field = walk.next() {
            if field.number >= number { return field.number == number ? field : nil }
        }
        return nil
    }

    mutating func next() -> AttributeField? {
        var end = position
        guard let tag = AttributeFields.varint(bytes, &end),
            let kind = AttributeField.Kind(rawValue: UInt8(tag & 7)), let number = UInt32(exactly: tag >> 3)
        else { return nil }
        var length = 0
        switch kind {
        case .no, .yes: break
        case .number: length = 8
        case .text, .moment, .selection:
            guard let stated = AttributeFields.varint(bytes, &end).flatMap({ Int(exactly: $0) }) else { return nil }
            length = stated
        }
        guard length <= bytes.count - end else { return nil }
        let content = end..<end + length
        defer { position = content.upperBound }
        return AttributeField(
            number: number, kind: kind, content: UnsafeRawBufferPointer(rebasing: bytes[content]),
            encoded: UnsafeRawBufferPointer(rebasing: bytes[position..<content.upperBound]))
    }

    /// Seven bits a byte, the lowest first; bit 7 says that another byte follows.
    @inline(__always)
    static func varint(_ bytes: UnsafeRawBufferPointer, _ position: inout Int) -> UInt64? {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while position < bytes.count {
            let byte = bytes[position]
            guard shift < 63 || byte <= 1 else { return nil }
            position += 1
            value |= UInt64(byte & 0x7F) << shift
            if byte < 0x80 { return value }
            shift += 7
        }
        return nil
    }

    /// Whether all bytes are read, the numbers ascend, and every value is one.
    var areSound: Bool {
        var walk = self
        var former: UInt32?
        while let field = walk.next() {
            if let former, former >= field.number { return false }
            former = field.number
            guard field.isSound else { return false }
        }
        return walk.position == bytes.count
    }
}

@available(*, unavailable) extension AttributeFields: Sendable {}
