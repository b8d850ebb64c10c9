/// A variation that the caller demands for a flag, or for one of its rules.
public struct ForcedDecision: Sendable, Equatable {
    public var flagKey: Identifier
    /// The experiment or delivery rule; `nil` for the flag as a whole.
    public var ruleKey: Identifier?
    public var variationKey: Identifier

    struct Place: Hashable {
        let flag: Identifier
        let rule: Identifier?
    }

    var place: Place { Place(flag: flagKey, rule: ruleKey) }

    /// - Parameter ruleKey: an empty key means the flag as a whole.
    public init(flagKey: Identifier, ruleKey: Identifier? = nil, variationKey: Identifier) {
        self.flagKey = flagKey
        self.ruleKey = ruleKey?.string.isEmpty == true ? nil : ruleKey
        self.variationKey = variationKey
    }
}
