/// The evaluation of a flag for a user.
public struct EvaluationDetails: Sendable, Hashable {
    /// Key of the flag.
    public let flagKey: String
    public let variationKey: String?
    public let variationID: String?
    /// The experiment that chose the variation; `nil` for delivery rules and if no rule applied.
    public let experimentID: String?
    /// Whether the flag is on.
    public let isEnabled: Bool
    /// Values of the flag's variables.
    public let variables: [String: HoldfastValue]
    /// The experiment, delivery rule or holdout that applied.
    public let ruleKey: String?
    /// Source of the decision: `forced`, `override`, `whitelist`, `stored`, `bucketed`, `holdout` or `none`.
    public let source: String
    /// Messages about problems during the decision.
    public let reasons: [String]
}

extension EvaluationDetails: Codable {
    private enum CodingKeys: String, CodingKey {
        case flagKey = "flag_key"
        case variationKey = "variation_key"
        case variationID = "variation_id"
        case experimentID = "experiment_id"
        case isEnabled = "enabled"
        case variables
        case ruleKey = "rule_key"
        case source, reasons
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        flagKey = try container.decode(String.self, forKey: .flagKey)
        variationKey = try container.decodeIfPresent(String.self, forKey: .variationKey)
        variationID = try container.decodeIfPresent(String.self, forKey: .variationID)
        experimentID = try container.decodeIfPresent(String.self, forKey: .experimentID)
        isEnabled = try container.decode(Bool.self, forKey: .isEnabled)
        variables = try container.decodeIfPresent([String: HoldfastValue].self, forKey: .variables) ?? [:]
        ruleKey = try container.decodeIfPresent(String.self, forKey: .ruleKey)
        source = try container.decodeIfPresent(String.self, forKey: .source) ?? "none"
        reasons = try container.decodeIfPresent([String].self, forKey: .reasons) ?? []
    }
}
