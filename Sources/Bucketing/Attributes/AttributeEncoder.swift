/// Writes the fields of an ``AttributeRecord``; the counterpart of ``AttributeFields``.
struct AttributeEncoder {
    private(set) var bytes: [UInt8] = [AttributeRecord.version]

    mutating func append(_ value: AttributeValue, number: UInt32) {
        append(varint: UInt64(number) << 3 | UInt64(AttributeField.Kind(value).rawValue))
        switch value {
        case .bool: break
        case .number(let number):
            withUnsafeBytes(of: number.bitPattern.littleEndian) { bytes.append(contentsOf: $0) }
        case .text(let text), .moment(let text):
            append(text)
        case .selection(let values):
            var content = AttributeEncoder()
            content.bytes = []
            for value in values { content.append(value) }
            append(varint: UInt64(content.bytes.count))
            bytes.append(contentsOf: content.bytes)
        }
    }

    /// Writes a value in the place of a field.
    ///
    /// - Returns: whether it is the same value.
    mutating func append(_ value: AttributeValue, replacing field: AttributeField) -> Bool {
        let start = bytes.count
        append(value, number: field.number)
        return bytes[start...].elementsEqual(field.encoded)
    }

    mutating func append(copying field: AttributeField) {
        bytes.append(contentsOf: field.encoded)
    }

    private mutating func append(_ text: Identifier) {
        append(varint: UInt64(text.string.utf8.count))
        bytes.append(contentsOf: text.string.utf8)
    }

    private mutating func append(varint number: UInt64) {
        var rest = number
        while rest >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(truncatingIfNeeded: rest))
    }
}

extension AttributeField.Kind {
    init(_ value: AttributeValue) {
        switch value {
        case .bool(let bool): self = bool ? .yes : .no
        case .number: self = .number
        case .text: self = .text
        case .moment: self = .moment
        case .selection: self = .selection
        }
    }
}
