/// What sets the macros for one remote value apart.
struct RemoteValueKind {
    /// The name of the attribute, without the `@`.
    let attributeName: String

    /// Whether the value is a `Bool`, whose default is an argument of the attribute. All others have an initial value.
    let isBool: Bool

    /// Whether a second key, with the suffix `_baseline`, holds the value of those outside the experiment.
    let hasBaseline: Bool

    static let string = RemoteValueKind(attributeName: "StringRemoteValue", isBool: false, hasBaseline: false)
    static let bool = RemoteValueKind(attributeName: "BoolRemoteValue", isBool: true, hasBaseline: false)
    static let baselineString = RemoteValueKind(attributeName: "BaselineStringRemoteValue", isBool: false, hasBaseline: true)
    static let baselineBool = RemoteValueKind(attributeName: "BaselineBoolRemoteValue", isBool: true, hasBaseline: true)

    static let all = [string, bool, baselineString, baselineBool]
}
