public import JSON

/// A feature flag: its experiments and delivery rules decide whether it is on, and which values its variables have.
public final class Flag: Sendable {
    public let id: Identifier
    public let key: Identifier
    public let experiments: [Experiment]
    public let rollout: Rollout?
    public let variables: [Variable]
    /// The variations of all rules, each id once.
    public let variations: [Variation]
    /// Holdfast's own data about the flag, which the SDKs ignore.
    public let annotations: FlagAnnotations

    private let defaultVariables: FlagVariables
    private let variablesByVariation: [Identifier: FlagVariables]

    /// - Parameters:
    ///   - holdoutVariations: the variations of all holdouts, since a holdout may decide any flag.
    ///   - texts: the variable values of all variations of experiments, by variation id and variable id.
    init(
        _ model: FlagModel, experiments: [Experiment], rollout: Rollout?, holdoutVariations: [Variation],
        texts: [Identifier: [Identifier: String]]
    ) {
        id = model.id
        key = model.key
        variables = model.variables
        annotations = model.annotations
        self.experiments = experiments
        self.rollout = rollout
        var variations = KeyedList<Variation>()
        for variation in (experiments + (rollout?.rules ?? [])).flatMap(\.variations)
        where variations[variation.id] == nil {
            variations.set(variation.id, variation)
        }
        self.variations = variations.values
        defaultVariables = FlagVariables(variables) { $0.defaultValue }
        var variablesByVariation: [Identifier: FlagVariables] = [:]
        for variation in variations.values + holdoutVariations where variation.isFeatureEnabled {
            variablesByVariation[variation.id] = FlagVariables(variables) { variable in
                texts[variation.id].flatMap { $0[variable.id] ?? variable.defaultValue }
            }
        }
        self.variablesByVariation = variablesByVariation
    }

    /// Returns the variables of users with a variation, or the defaults.
    public func values(for variation: Variation?) -> [VariableValue] {
        variables(for: variation).values
    }

    /// Returns the variables for a user with a variation: the defaults if the flag is off.
    func variables(for variation: Variation?) -> FlagVariables {
        guard let variation, variation.isFeatureEnabled else { return defaultVariables }
        return variablesByVariation[variation.id] ?? .none
    }
}

/// The API's own data about flags, experiments and groups, for which the SDKs' model has no place. Decisions do not
/// depend on them.
public enum Annotations {
    /// The member of an object in a datafile that has them. SDKs ignore it.
    public static let member = "holdfast"
}

/// The annotations of a flag.
public struct FlagAnnotations: Sendable {
    /// Labels by which clients choose flags.
    public let tags: [Identifier]
    /// The revision of the datafile with the flag's last change; `nil` for a flag that was not defined over the API.
    public let version: Int64?
    /// Whether the flag serves the experiment of the same key, with the variation's key as value.
    public let servesExperiment: Bool
    /// Whether the flag was turned off over the API.
    public let isTurnedOff: Bool

    public init(_ object: JSONObject?) {
        tags = (object?["tags"]?.array ?? []).compactMap { $0.string.map { Identifier($0) } }
        version = object?["version"]?.integer
        servesExperiment = object?["experiment"] == true
        isTurnedOff = object?["off"] != nil
    }
}

/// The delivery rules of a flag. The last one is for everyone else.
public struct Rollout: Sendable {
    public let id: Identifier
    public let rules: [Experiment]
}

/// A typed value that a flag delivers. Variations may override its default.
public struct Variable: Sendable {
    public enum Kind: String, Sendable, CaseIterable {
        case boolean
        case integer
        case double
        case json
        /// Also used for types that are unknown.
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

    /// Converts a text of the datafile like the reference SDK's `get_typecast_value`.
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

    private static func integer(_ text: String) -> JSONValue? {
        guard let digits = number(text), digits.utf8.allSatisfy({ !".eE".utf8.contains($0) }) else { return nil }
        return Int64(digits).map { .integer($0) } ?? double(text)
    }

    private static func double(_ text: String) -> JSONValue? {
        guard let digits = number(text), let value = Double(digits), value.isFinite else { return nil }
        return .number(value)
    }

    /// Returns the digits of a decimal number that Python would accept: without surrounding white space, and without
    /// single underscores between digits.
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

/// The variables of a flag with their values for one variation, or with the defaults.
struct FlagVariables: Sendable {
    let values: [VariableValue]
    /// One message for each variable whose text in the datafile does not match its type, in the Agent's words.
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
    /// The reference SDK's value for a variable without text in the datafile: false, or null.
    fileprivate var valueWithoutText: JSONValue? {
        switch self {
        case .boolean: false
        default: .null
        }
    }
}
