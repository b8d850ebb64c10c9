public import JSON

/// Users who meet conditions on their attributes.
public struct Audience: Sendable {
    public let id: Identifier
    public let name: String
    /// Lists of conditions that begin with `and`, `or` or `not`.
    public let conditions: JSONValue
}
