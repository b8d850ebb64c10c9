import JSON

/// One value of an ``AttributeRecord`` where its bytes lie.
struct AttributeField {
    enum Kind: UInt8 {
        case no = 0
        case yes = 1
        case number = 2
        case text = 3
        case moment = 4
        case selection = 5
    }

    let number: UInt32
    let kind: Kind
    let content: UnsafeRawBufferPointer
    /// The whole field.
    let encoded: UnsafeRawBufferPointer

    /// The value by itself.
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

    /// Writes the value as the API has it, from where its bytes lie: a record may be of many megabytes.
    ///
    /// - Parameter isMultiple: whether a selection is an array, even of one.
    func append(to writer: inout JSONWriter, isMultiple: Bool) {
        switch kind {
        case .no: writer.bool(false)
        case .yes: writer.bool(true)
        case .number:
            if let integer = Int64(exactly: double) { writer.integer(integer) } else { writer.number(double) }
        case .text, .moment: writer.string(utf8: content.assumingMemoryBound(to: UInt8.self))
        case .selection:
            var walk = options
            guard isMultiple else {
                return writer.string(utf8: (walk.next() ?? .init(start: nil, count: 0)).assumingMemoryBound(to: UInt8.self))
            }
            writer.beginArray()
            while let option = walk.next() { writer.string(utf8: option.assumingMemoryBound(to: UInt8.self)) }
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

    /// Whether the value is one that was written here.
    var isSound: Bool {
        switch kind {
        case .no, .yes: true
        case .number: double.isFinite
        case .text, .moment: Self.isText(content)
        case .selection: isSoundSelection
        }
    }

    private var isSoundSelection: Bool {
        var walk = options
        while let option = walk.next() {
            guard Self.isText(option) else { return false }
        }
        return walk.isAtEnd
    }

    private static func isText(_ bytes: UnsafeRawBufferPointer) -> Bool {
        bytes.isASCII || String(validating: bytes, as: UTF8.self) != nil
    }
}

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

    /// Of a selection any value may be the one.
    func equals(_ text: String) -> Bool? {
        compare(text) { $0.count == $1.count && $0.elementsEqual($1) }
    }

    func contains(_ text: String) -> Bool? {
        compare(text) { $0.containsBytes(of: $1) }
    }

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

/// The values of a selection where their bytes lie.
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
