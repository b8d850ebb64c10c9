/// What a user gets of a flag.
public struct Decision: Sendable {
    public enum RuleType: String, Sendable {
        case featureTest = "feature-test"
        case rollout
        case holdout
    }

    public let flagKey: Identifier
    /// The experiment, delivery rule or holdout; `nil` if none applied, or the variation was forced for the flag.
    public let ruleKey: Identifier?
    public let ruleType: RuleType
    public let variation: Variation?
    public let isEnabled: Bool
    /// In the order of the datafile; empty if they were to be excluded.
    public let variables: [VariableValue]
    /// Empty unless asked for, but for what went wrong.
    public let reasons: [String]
    /// Where the variation comes from.
    public let origin: Origin
    /// Whether no decision could be made, because a contextual bandit had to be asked. Then all else is empty.
    public let hasFailed: Bool
}

/// Where a variation comes from.
public enum Origin: String, Sendable, CaseIterable {
    /// Demanded by the caller.
    case forced
    /// Set by an admin.
    case override
    /// The datafile's forced variations.
    case whitelist
    case stored
    case bucketed
    case holdout
    case none
}
