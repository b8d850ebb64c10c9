/// A decision event: a user was given a variation.
public struct Impression: Sendable, Equatable {
    /// Empty if an experiment was activated without a flag.
    public var flagKey: Identifier
    /// Empty if there was no rule.
    public var ruleKey: Identifier
    /// `feature-test`, `rollout`, `holdout`, or `experiment` if an experiment was activated.
    public var ruleType: String
    /// Empty if there was no rule.
    public var experimentID: Identifier
    /// The layer of the experiment, or else its id.
    public var campaignID: Identifier
    /// Empty if there was none.
    public var variationID: Identifier
    public var variationKey: Identifier
    public var isEnabled: Bool
    /// Where the variation comes from.
    public var origin: Origin
}

extension Impression {
    /// The event of a user who takes part in an experiment without a flag.
    public init(activating experiment: Experiment, variation: Variation, origin: Origin) {
        self.init(
            flagKey: "", rule: .experiment(experiment), ruleType: "experiment", variation: variation, isEnabled: true,
            origin: origin
        )
    }

    init(
        flagKey: Identifier, rule: Rule?, ruleType: String, variation: Variation?, isEnabled: Bool, origin: Origin
    ) {
        let experimentID = rule?.id ?? ""
        let layerID = rule?.layerID ?? ""
        self.init(
            flagKey: flagKey, ruleKey: rule?.key ?? "", ruleType: ruleType, experimentID: experimentID,
            campaignID: layerID.string.isEmpty ? experimentID : layerID,
            variationID: variation?.id ?? "", variationKey: variation?.key ?? "", isEnabled: isEnabled,
            origin: origin
        )
    }
}
