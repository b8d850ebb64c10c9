public import JSON

/// A typed value that a flag delivers. Variations may override its default.
///
/// A datafile has values as texts. ``FlagVariables`` converts them by the ``Kind`` of the variable, as Optimizely's
/// Python SDK does.
public struct Variable: Sendable {
    /// The type of a variable's values.
    public enum Kind: String, Sendable, CaseIterable {
        case boolean
        case integer
        case double
        case json
        /// Also the kind of variables whose type is unknown.
        case string
    }

    public let id: Identifier
    public let key: Identifier
    public let kind: Kind
    /// The type as the datafile names it: `boolean`, `integer`, `double`, `json`, `string`.
    public let type: String
    public let defaultValue: String
}

/// A variable with its value for a user.
public struct VariableValue: Sendable, Equatable {
    public let key: Identifier
    /// Null if the datafile's text does not match the variable's type.
    public let value: JSONValue
}

extension Variable.Kind {
    init(type: String, subType: String?) {
        switch type {
        case "boolean": self = .boolean
        case "integer": self = .integer
        case "double": self = .double
        case "json": self = .json
        case "string" where subType == "json": self = .json
        default: self = .string
        }
    }

    /// Converts a text of the datafile, like `get_typecast_value` of Optimizely's Python SDK.
    ///
    /// - Returns: `nil` if the text does not match the type.
    func value(_ text: String) -> JSONValue? {
        switch self {
        case .boolean: .bool(text.hasSameBytes(as: "true"))
        case .integer: Self.integer(text)
        case .double: Self.double(text)
        case .json: try? JSONParser().parse(text)
        case .string: .string(text)
        }
    }

    /// Converts what Python's `int` accepts. A number beyond 64 bits becomes a `Double`.
    private static func integer(_ text: String) -> JSONValue? {
        guard let digits = number(text), digits.utf8.allSatisfy({ !".eE".utf8.contains($0) }) else { return nil }
        return Int64(digits).map { .integer($0) } ?? double(text)
    }

    /// Converts what Python's `float` accepts, except for infinities and `nan`.
    private static func double(_ text: String) -> JSONValue? {
        guard let digits = number(text), let value = Double(digits), value.isFinite else { return nil }
        return .number(value)
    }

    /// Returns a decimal number without what Python allows in addition: white space around the number, and single
    /// underscores between digits. `nil` if the text has other characters.
    private static func number(_ text: String) -> String? {
        let trimmed = text.drop(while: \.isWhitespace)
        guard let end = trimmed.lastIndex(where: { !$0.isWhitespace }) else { return nil }
        let pieces = trimmed[...end].split(separator: "_", omittingEmptySubsequences: false)
        for (piece, next) in zip(pieces, pieces.dropFirst()) {
            guard piece.last?.isASCIIDigit == true, next.first?.isASCIIDigit == true else { return nil }
        }
        let number = pieces.joined()
        return number.allSatisfy { $0.isASCIIDigit || "+-.eE".contains($0) } ? number : nil
    }
}

extension Character {
    fileprivate var isASCIIDigit: Bool {
        isASCII && isWholeNumber
    }
}

/// The variables of a flag with their values for one variation, or with their default values.
struct FlagVariables: Sendable {
    let values: [VariableValue]
    /// One message for each variable whose text in the datafile does not match its type, in the words of the Optimizely
    /// Agent.
    let problems: [String]

    static let none = FlagVariables(values: [], problems: [])

    private init(values: [VariableValue], problems: [String]) {
        self.values = values
        self.problems = problems
    }

    /// - Parameter text: returns the datafile's text for a variable; `nil` if there is none, not even a default.
    init(_ variables: [Variable], text: (Variable) -> String?) {
        var values: [VariableValue] = []
        var problems: [String] = []
        for variable in variables {
            let value = text(variable).map { variable.kind.value($0) } ?? variable.kind.valueWithoutText
            if value == nil {
                problems.append("Variable value for key \"\(variable.key)\" is invalid or wrong type.")
            }
            values.append(VariableValue(key: variable.key, value: value ?? .null))
        }
        self.values = values
        self.problems = problems
    }
}

extension Variable.Kind {
    /// The value of a variable without a text in the datafile, as Optimizely's Python SDK has it: false, or null.
    fileprivate var valueWithoutText: JSONValue? {
        switch self {
        case .boolean: false
        default: .null
        }
    }
}
