public import JSON

/// Users who meet conditions on their stored attributes.
public struct Segment: Sendable {
    /// 1 to 255 bytes.
    public let name: Identifier
    /// As an audience of a datafile has them.
    public let conditions: JSONValue
    package let condition: Condition
    package let mentions: Mentions

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

/// The stored attributes of one user and the segments that are defined, as conditions look them up.
public protocol AttributeSource: Sendable {
    /// Returns how a test answers for the stored value of an attribute; `nil` if that is unknown.
    func answer(_ test: AttributeTest, attribute: Identifier) -> Bool?

    /// Returns the segment of a name; `nil` if none is defined.
    func segment(_ name: Identifier) -> Segment?
}
