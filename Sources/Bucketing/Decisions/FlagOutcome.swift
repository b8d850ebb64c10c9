/// Which rule of a flag applied, and with which variation.
struct FlagOutcome {
    var rule: Rule?
    var type: Decision.RuleType
    var variation: Variation?
    var origin: Origin
    /// The global holdout that the user is in and that spared the rule.
    var sparingHoldout: (holdout: Holdout, variation: Variation)?
    /// The contextual bandit that could not be asked.
    var failedBandit: Experiment?

    /// The end of the delivery rules, where none applied.
    static let nothing = FlagOutcome(rule: nil, type: .rollout, variation: nil, origin: .none)

    init(rule: Rule?, type: Decision.RuleType, variation: Variation?, origin: Origin) {
        self.rule = rule
        self.type = type
        self.variation = variation
        self.origin = origin
    }

    init(heldOutBy holdout: Holdout, _ variation: Variation) {
        self.init(rule: .holdout(holdout), type: .holdout, variation: variation, origin: .holdout)
    }
}
