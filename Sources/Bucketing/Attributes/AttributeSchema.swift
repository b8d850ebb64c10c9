/// The attributes and segments that admins have defined, as they are at one moment.
public final class AttributeSchema: Sendable {
    /// In the order of their names' bytes.
    public let attributes: [AttributeDefinition]
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

    /// The names of the defined attributes that conditions ask for, by themselves or through segments.
    public func attributes(for mentions: Mentions) -> [String] {
        var names = mentions.attributes
        for name in mentions.segments { names.formUnion(segments[name]?.mentions.attributes ?? []) }
        return attributes.map(\.name).filter(names.contains).map(\.string)
    }
}
