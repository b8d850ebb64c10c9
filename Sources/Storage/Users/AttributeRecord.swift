public import Bucketing
public import JSON

/// A validated value of a stored attribute.
public enum AttributeValue: Sendable, Hashable {
    case bool(Bool)
    /// Finite.
    case number(Double)
    case text(Identifier)
    /// A date, time or timestamp in a form that sorts chronologically.
    case moment(Identifier)
    /// In the order of the definition's allowed values; never empty.
    case selection([Identifier])
}

/// An update of one attribute of a user.
public enum AttributeUpdate: Sendable, Hashable {
    case set(AttributeValue)
    case remove
}

/// One user's attributes in the compact binary form that stores keep in a row and caches hold.
///
/// ```
/// version   1 byte, 1
/// fields    in the order of the attributes' numbers, each:
///     number and kind    varint, number << 3 | kind (see `AttributeField.Kind`)
///     value              by kind:
///         no, yes        nothing
///         number         8 bytes, IEEE 754, little-endian
///         text, moment   varint length, UTF-8
///         selection      varint length of all values; for each value, varint length, UTF-8
/// ```
///
/// A field whose attribute is no longer in the schema counts as absent.
public struct AttributeRecord: Sendable, Hashable {
    /// The encoded form.
    public let bytes: [UInt8]

    static let version: UInt8 = 1

    /// The record of a user without attributes.
    public static let empty = AttributeRecord(bytes: [version])

    private init(bytes: [UInt8]) {
        self.bytes = bytes
    }

    /// Validates bytes from outside, such as a database row.
    ///
    /// - Returns: `nil` unless the bytes are a well-formed record of a known version.
    public init?(checking bytes: [UInt8]) {
        let isValid = bytes.withUnsafeBytes { AttributeFields($0)?.areValid ?? false }
        guard isValid else { return nil }
        self.init(bytes: bytes)
    }

    /// Decodes the stored record of a user.
    ///
    /// - Throws: ``StorageError/damaged(reason:)``, which concerns only this user.
    public init(stored bytes: [UInt8], of userID: Identifier) throws(StorageError) {
        guard let record = AttributeRecord(checking: bytes) else {
            throw .damaged(
                reason: "the stored attributes of '\(userID)' are damaged; erase the user with DELETE to start over")
        }
        self = record
    }

    /// Adopts the ``bytes`` of another record without validating them again.
    package init(trusting bytes: [UInt8]) {
        self.init(bytes: bytes)
    }

    public var isEmpty: Bool { bytes.count <= 1 }

    /// The value of an attribute; `nil` if the user has none.
    public subscript(number: UInt32) -> AttributeValue? {
        bytes.withUnsafeBytes { AttributeFields($0)?.field(number)?.value }
    }

    /// The numbers of the attributes that have a value, in ascending order.
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
    /// Writes the values as a JSON object, keyed by name in the order of the schema.
    public func append(to writer: inout JSONWriter, _ schema: AttributeSchema) {
        writer.beginObject()
        bytes.withUnsafeBytes { bytes in
            guard var iterator = AttributeFields(bytes) else { return }
            // One pass over the record; a lookup of each field would take one pass each.
            var fields: [UInt32: AttributeField] = [:]
            while let field = iterator.next() { fields[field.number] = field }
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
    /// Returns the record with some values set and others removed.
    ///
    /// - Parameters:
    ///   - updates: keyed by attribute number.
    ///   - changed: called with the number of each attribute whose value changed.
    public func applying(_ updates: [UInt32: AttributeUpdate], changed: (UInt32) -> Void) -> AttributeRecord {
        var encoder = AttributeEncoder()
        var pending = updates.sorted { $0.key < $1.key }[...]
        // Both lists are in the order of numbers, as in a merge of two sorted lists.
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
                switch update {
                case .set(let value): if !encoder.append(value, replacing: field) { changed(number) }
                case .remove: changed(number)
                }
            }
        }
        appendPending(below: nil)
        return AttributeRecord(bytes: encoder.bytes)
    }
}

/// Encodes the fields of an ``AttributeRecord``; the counterpart of `AttributeFields`.
private struct AttributeEncoder {
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
            // Encoded separately, because its length comes first.
            var content = AttributeEncoder()
            content.bytes = []
            for value in values { content.append(value) }
            append(varint: UInt64(content.bytes.count))
            bytes.append(contentsOf: content.bytes)
        }
    }

    /// Encodes a value that replaces a field.
    ///
    /// - Returns: whether the value is unchanged.
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
