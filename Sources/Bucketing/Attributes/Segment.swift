public import JSON

/// Users who meet conditions on their stored attributes.
public struct Segment: Sendable {
    /// 1 to 255 bytes.
    public let name: Identifier
    /// As an audience of a datafile has them.
    public let conditions: JSONValue
    let condition: Condition
    let mentions: Mentions

    public init(name: Identifier, conditions: JSONValue) {
        self.name = name
        self.conditions = conditions
        condition = Condition(audience: conditions).remembered(as: .segment(name))
        mentions = Mentions(audience: conditions)
    }

    /// Whether the conditions name an attribute.
    public func asks(for attribute: Identifier) -> Bool {
        mentions.attributes.contains(attribute)
    }
}
