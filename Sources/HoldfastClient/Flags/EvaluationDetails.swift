/// What a user gets of a flag.
public struct EvaluationDetails: Sendable, Hashable {
    /// The key of the flag.
    public let featureID: String
    public let variationKey: String?
    public let variationID: String?
    /// The experiment that the variation belongs to; `nil` for delivery rules and where no rule applied.
    public let experimentID: String?
    /// Whether the flag is on.
    public let isEnabled: Bool
    /// The values that the flag carries.
    public let variables: [String: JSONValue]
    /// The experiment, delivery rule or holdout that applied.
    public let ruleKey: String?
    /// Where the variation comes from: `forced`, `override`, `whitelist`, `stored`, `bucketed`, `holdout` or `none`.
    public let source: String
    /// What went wrong on the way, if anything did.
    public let reasons: [String]
}

extension EvaluationDetails: Codable {
    private enum CodingKeys: String, CodingKey {
        case featureID = "flag_key"
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
        featureID = try container.decode(String.self, forKey: .featureID)
        variationKey = try container.decodeIfPresent(String.self, forKey: .variationKey)
        variationID = try container.decodeIfPresent(String.self, forKey: .variationID)
        experimentID = try container.decodeIfPresent(String.self, forKey: .experimentID)
        isEnabled = try container.decode(Bool.self, forKey: .isEnabled)
        variables = try container.decodeIfPresent([String: JSONValue].self, forKey: .variables) ?? [:]
        ruleKey = try container.decodeIfPresent(String.self, forKey: .ruleKey)
        source = try container.decodeIfPresent(String.self, forKey: .source) ?? "none"
        reasons = try container.decodeIfPresent([String].self, forKey: .reasons) ?? []
    }
}
