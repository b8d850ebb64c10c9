public import JSON

/// The stored attributes of one user in their compact binary form: what a store keeps in a row and what a cache holds.
///
/// ```
/// version   1 byte, 1
/// fields    ascending by the number of the attribute, each:
///     number and kind    varint, number << 3 | ``AttributeField/Kind``
///     number             8 bytes, IEEE 754, little endian; of kind number
///     length, content    varint and so many bytes; of kinds text, moment and selection
/// content   UTF-8; of a selection for each value a varint length and UTF-8
/// ```
///
/// What a record says of an attribute that the schema no longer has is as good as absent.
public struct AttributeRecord: Sendable, Hashable {
    /// The encoded form.
    public let bytes: [UInt8]

    static let version: UInt8 = 1

    /// Of a user without attributes.
    public static let empty = AttributeRecord(bytes: [version])

    private init(bytes: [UInt8]) {
        self.bytes = bytes
    }

    /// Reads a record that comes from outside, such as a row of a database.
    ///
    /// - Returns: `nil` unless every byte is as this version of the format demands.
    public init?(checking bytes: [UInt8]) {
        let isSound = bytes.withUnsafeBytes { AttributeFields($0)?.areSound ?? false }
        guard isSound else { return nil }
        self.init(bytes: bytes)
    }

    /// Takes the ``bytes`` of another record.
    package init(trusting bytes: [UInt8]) {
        self.init(bytes: bytes)
    }

    public var isEmpty: Bool { bytes.count <= 1 }

    /// The value of an attribute; `nil` if there is none.
    public subscript(number: UInt32) -> AttributeValue? {
        bytes.withUnsafeBytes { AttributeFields($0)?.field(number)?.value }
    }

    /// The numbers of the attributes that have a value, ascending.
    public var numbers: [UInt32] {
        bytes.withUnsafeBytes { bytes in
            guard var fields = AttributeFields(bytes) else { return [] }
            var numbers: [UInt32] = []
            while let field = fields.next() { numbers.append(field.number) }
            return numbers
        }
    }
}

extension AttributeRecord {
    /// Writes the values as an object, by name in the order of the schema.
    public func append(to writer: inout JSONWriter, _ schema: AttributeSchema) {
        writer.beginObject()
        bytes.withUnsafeBytes { bytes in
            guard var walk = AttributeFields(bytes) else { return }
            // Not looked for one by one, which would take a walk each.
            var fields: [UInt32: AttributeField] = [:]
            while let field = walk.next() { fields[field.number] = field }
            for definition in schema.attributes {
                guard let field = fields[definition.number] else { continue }
                writer.key(text: definition.name.string)
                field.append(to: &writer, isMultiple: definition.isMultiple)
            }
        }
        writer.endObject()
    }
}

extension AttributeRecord {
    /// The record with some values set and others removed.
    ///
    /// - Parameters:
    ///   - updates: by the number of the attribute.
    ///   - changed: called with the number of each attribute whose value is another than before.
    public func applying(_ updates: [UInt32: AttributeUpdate], changed: (UInt32) -> Void) -> AttributeRecord {
        var encoder = AttributeEncoder()
        var pending = updates.sorted { $0.key < $1.key }[...]
        func appendPending(below limit: UInt32?) {
            while let (number, update) = pending.first, limit.map({ number < $0 }) ?? true {
                pending.removeFirst()
                guard case .set(let value) = update else { continue }
                encoder.append(value, number: number)
                changed(number)
            }
        }
        bytes.withUnsafeBytes { bytes in
            guard var fields = AttributeFields(bytes) else { return }
            while let field = fields.next() {
                appendPending(below: field.number)
                guard let (number, update) = pending.first, number == field.number else {
                    encoder.append(copying: field)
                    continue
                }
                pending.removeFirst()
                let isSame = if case .set(let value) = update { encoder.append(value, replacing: field) } else { false }
                if !isSame { changed(number) }
            }
        }
        appendPending(below: nil)
        return AttributeRecord(bytes: encoder.bytes)
    }
}
