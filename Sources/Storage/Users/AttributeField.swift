import Bucketing
import JSON

/// Iterates over the fields of an ``AttributeRecord`` without copying them. Every byte is checked: a malformed field
/// ends the iteration. ``AttributeRecord`` describes the format.
struct AttributeFields {
    private let bytes: UnsafeRawBufferPointer
    /// The position of the next field. The first field follows the version, which is one byte.
    private var position = 1

    /// - Returns: `nil` for an unknown version of the format.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.first == AttributeRecord.version else { return nil }
        self.bytes = bytes
    }

    /// Returns the field of the attribute with this number; `nil` if there is none.
    func field(_ number: UInt32) -> AttributeField? {
        var iterator = self
        while let field = iterator.next() {
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

    /// Reads a number of variable length, and moves the position behind it. Each byte has seven bits of the number,
    /// lowest first, and bit 7 is set if another byte follows.
    ///
    /// - Returns: `nil` if the bytes end within the number, or if it exceeds 64 bits.
    @inline(__always)
    static func varint(_ bytes: UnsafeRawBufferPointer, _ position: inout Int) -> UInt64? {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while position < bytes.count {
            let byte = bytes[position]
            // The tenth byte has only the highest of the 64 bits.
            guard shift < 63 || byte <= 1 else { return nil }
            position += 1
            value |= UInt64(byte & 0x7F) << shift
            if byte < 0x80 { return value }
            shift += 7
        }
        return nil
    }

    /// Whether the fields are well formed, in ascending order of their numbers, and use up all bytes.
    var areValid: Bool {
        var iterator = self
        var former: UInt32?
        while let field = iterator.next() {
            if let former, former >= field.number { return false }
            former = field.number
            guard field.isValid else { return false }
        }
        return iterator.position == bytes.count
    }
}

@available(*, unavailable) extension AttributeFields: Sendable {}

/// One field of an ``AttributeRecord``, as a view of the record's bytes.
struct AttributeField {
    /// The kind of the value. Records store the raw value.
    enum Kind: UInt8 {
        case no = 0
        case yes = 1
        case number = 2
        case text = 3
        case moment = 4
        case selection = 5
    }

    /// The number of the attribute.
    let number: UInt32
    let kind: Kind
    /// The encoded value, without its length.
    let content: UnsafeRawBufferPointer
    /// The whole field, including its number, kind and length.
    let encoded: UnsafeRawBufferPointer

    /// A copy of the value.
    var value: AttributeValue {
        switch kind {
        case .no: .bool(false)
        case .yes: .bool(true)
        case .number: .number(double)
        case .text: .text(Self.identifier(content))
        case .moment: .moment(Self.identifier(content))
        case .selection: .selection(options.map(Self.identifier))
        }
    }

    /// Writes the value as the API presents it. The value is not copied first, because a record may have many
    /// megabytes.
    ///
    /// - Parameter isMultiple: whether a selection becomes an array, even with one value; see
    ///   ``AttributeDefinition/isMultiple``.
    func append(to writer: inout JSONWriter, isMultiple: Bool) {
        switch kind {
        case .no: writer.bool(false)
        case .yes: writer.bool(true)
        case .number: writer.shortest(double)
        case .text, .moment: writer.string(utf8: content.assumingMemoryBound(to: UInt8.self))
        case .selection:
            var iterator = options
            guard isMultiple else {
                return writer.string(
                    utf8: (iterator.next() ?? .init(start: nil, count: 0)).assumingMemoryBound(to: UInt8.self))
            }
            writer.beginArray()
            while let option = iterator.next() { writer.string(utf8: option.assumingMemoryBound(to: UInt8.self)) }
            writer.endArray()
        }
    }

    private var double: Double {
        Double(bitPattern: UInt64(littleEndian: content.loadUnaligned(as: UInt64.self)))
    }

    private var options: AttributeOptions { AttributeOptions(content: content) }

    private static func identifier(_ bytes: UnsafeRawBufferPointer) -> Identifier {
        Identifier(String(decoding: bytes, as: UTF8.self))
    }

    /// Whether the content is a valid value of its kind.
    var isValid: Bool {
        switch kind {
        case .no, .yes: true
        case .number: double.isFinite
        case .text, .moment: Self.isText(content)
        case .selection: isValidSelection
        }
    }

    private var isValidSelection: Bool {
        var iterator = options
        while let option = iterator.next() {
            guard Self.isText(option) else { return false }
        }
        return iterator.isAtEnd
    }

    /// Whether bytes are UTF-8.
    private static func isText(_ bytes: UnsafeRawBufferPointer) -> Bool {
        bytes.isASCII || String(validating: bytes, as: UTF8.self) != nil
    }
}

// The evaluation of conditions without copying values. A selection meets a test if any of its values does.
extension AttributeField: ConditionOperand {
    var isNull: Bool { false }

    var bool: Bool? {
        switch kind {
        case .no: false
        case .yes: true
        default: nil
        }
    }

    var usableNumber: Double? { kind == .number ? Self.usable(double) : nil }

    var text: String? {
        kind == .text || kind == .moment ? String(decoding: content, as: UTF8.self) : nil
    }

    func equals(_ text: String) -> Bool? {
        compare(text) { $0.count == $1.count && $0.elementsEqual($1) }
    }

    func contains(_ text: String) -> Bool? {
        compare(text) { $0.containsBytes(of: $1) }
    }

    func meets(_ test: TextTest) -> Bool? {
        switch kind {
        case .text, .moment: return test.holds(content)
        case .selection: return options.contains { test.holds($0) ?? false }
        case .no, .yes, .number: return nil
        }
    }

    /// Returns whether a comparison with a text holds for the value, or for any value of a selection; `nil` for other
    /// kinds.
    private func compare(_ text: String, _ holds: (UnsafeRawBufferPointer, UnsafeRawBufferPointer) -> Bool) -> Bool? {
        var text = text
        return text.withUTF8 { utf8 in
            let sought = UnsafeRawBufferPointer(utf8)
            switch kind {
            case .text, .moment: return holds(content, sought)
            case .selection: return options.contains { holds($0, sought) }
            case .no, .yes, .number: return nil
            }
        }
    }

    /// Moments sort chronologically by their bytes; see ``AttributeValue/moment(_:)``.
    func momentOrder(to text: String) -> Int? {
        guard kind == .moment else { return nil }
        var text = text
        return text.withUTF8 { other in
            for (left, right) in zip(content, other) where left != right { return left < right ? -1 : 1 }
            return content.count - other.count
        }
    }
}

@available(*, unavailable) extension AttributeField: Sendable {}

/// Iterates over the values of a selection without copying them. A malformed value ends the iteration.
private struct AttributeOptions: Sequence, IteratorProtocol {
    let content: UnsafeRawBufferPointer
    private var position = 0

    init(content: UnsafeRawBufferPointer) {
        self.content = content
    }

    var isAtEnd: Bool { position == content.count }

    mutating func next() -> UnsafeRawBufferPointer? {
        var start = position
        guard let length = AttributeFields.varint(content, &start).flatMap({ Int(exactly: $0) }),
            length <= content.count - start
        else { return nil }
        position = start + length
        return UnsafeRawBufferPointer(rebasing: content[start..<position])
    }
}
