import JSON

/// All variables of a flag with the values of one variation, or with the defaults.
struct FlagVariables: Sendable {
    let values: [VariableValue]
    /// One for each variable whose text in the datafile is not of its type, as the Agent words it.
    let problems: [String]

    static let none = FlagVariables(values: [], problems: [])

    private init(values: [VariableValue], problems: [String]) {
        self.values = values
        self.problems = problems
    }

    /// - Parameter text: the text of a variable; `nil` if it has none, not even the default.
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
    /// What the reference SDK makes of a variable that the datafile holds no text for: false, or null.
    fileprivate var valueWithoutText: JSONValue? {
        switch self {
        case .boolean: false
        default: .null
        }
    }
}
