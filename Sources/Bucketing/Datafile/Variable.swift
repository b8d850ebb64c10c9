public import JSON

/// A value that a flag carries and that variations may change.
public struct Variable: Sendable {
    public enum Kind: Sendable {
        case boolean
        case integer
        case double
        case json
        /// Also what a datafile calls by another name.
        case string
    }

    public let id: Identifier
    public let key: Identifier
    public let kind: Kind
    /// As the datafile calls its kind: `boolean`, `integer`, `double`, `json`, `string`.
    public let type: String
    public let defaultValue: String
}

/// A variable with the value that a user gets.
public struct VariableValue: Sendable, Equatable {
    public let key: Identifier
    /// Null if the datafile's text is not of the variable's type.
    public let value: JSONValue
}
