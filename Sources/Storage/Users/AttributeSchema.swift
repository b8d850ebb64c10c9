public import Bucketing
public import JSON

/// An immutable snapshot of the attributes and segments that admins have defined.
public final class AttributeSchema: Sendable {
    /// In the byte order of their names.
    public let attributes: [AttributeDefinition]
    /// The segments by their names.
    public let segments: [Identifier: Segment]
    private let byName: [Identifier: AttributeDefinition]
    private let byNumber: [UInt32: AttributeDefinition]

    public static let empty = AttributeSchema(attributes: [], segments: [])

    public init(attributes: [AttributeDefinition], segments: [Segment]) {
        self.attributes = attributes.sorted { $0.name < $1.name }
        self.segments = Dictionary(segments.map { ($0.name, $0) }, uniquingKeysWith: { $1 })
        byName = Dictionary(attributes.map { ($0.name, $0) }, uniquingKeysWith: { $1 })
        byNumber = Dictionary(attributes.map { ($0.number, $0) }, uniquingKeysWith: { $1 })
    }

    public var isEmpty: Bool { attributes.isEmpty && segments.isEmpty }

    public func attribute(_ name: Identifier) -> AttributeDefinition? {
        byName[name]
    }

    public func attribute(number: UInt32) -> AttributeDefinition? {
        byNumber[number]
    }

    /// Returns the names of the defined attributes that conditions use, directly or through segments.
    ///
    /// - Parameter mentions: the attributes and segments that the conditions name.
    public func attributes(for mentions: Mentions) -> [String] {
        var names = mentions.attributes
        for name in mentions.segments { names.formUnion(segments[name]?.mentions.attributes ?? []) }
        return attributes.map(\.name).filter(names.contains).map(\.string)
    }
}

/// A user's stored attributes together with the schema that names them. Conditions are evaluated on it.
public struct StoredAttributes: AttributeSource {
    private let schema: AttributeSchema
    private let record: AttributeRecord?

    /// - Parameter record: `nil` if nothing is stored, or no condition needs it.
    public init(schema: AttributeSchema, record: AttributeRecord?) {
        self.schema = schema
        self.record = record
    }

    public func evaluate(_ test: AttributeTest, attribute name: Identifier) -> Bool? {
        guard let record, let definition = schema.attribute(name) else { return test.evaluate(AttributeField?.none) }
        return record.bytes.withUnsafeBytes { bytes in
            test.evaluate(AttributeFields(bytes)?.field(definition.number))
        }
    }

    public func value(of name: Identifier) -> JSONValue? {
        guard let definition = schema.attribute(name), let value = record?[definition.number] else { return nil }
        switch value {
        case .bool(let bool): return .bool(bool)
        case .number(let number): return .shortest(number)
        case .text(let text), .moment(let text): return .string(text.string)
        case .selection(let values):
            if definition.isMultiple { return .array(values.map { .string($0.string) }) }
            return values.first.map { .string($0.string) } ?? .null
        }
    }

    public func segment(_ name: Identifier) -> Segment? {
        schema.segments[name]
    }
}
