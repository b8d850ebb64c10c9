extension DecisionRun {
    /// The reference SDK's `get_variation_for_rollout`: the first delivery rule that suits, or the one for everyone
    /// else if its audience suits but not its traffic.
    func evaluateRollout(of flag: Flag) -> FlagOutcome {
        guard let rollout = flag.rollout else {
            reasons.add("Rollout with ID \"\" is not in the datafile.")
            return .nothing
        }
        var index = 0
        while index < rollout.rules.count {
            let rule = rollout.rules[index]
            let isLast = index == rollout.rules.count - 1
            if let variation = forcedVariation(of: flag, rule: rule) {
                return FlagOutcome(rule: .experiment(rule), type: .rollout, variation: variation, origin: .forced)
            }
            if let held = localHoldout(ofRule: rule) {
                return FlagOutcome(heldOutBy: held.holdout, held.variation)
            }
            if deliveryAdmits(to: rule, name: isLast ? nil : index + 1) {
                if let variation = bucket(into: rule) {
                    return FlagOutcome(rule: .experiment(rule), type: .rollout, variation: variation, origin: .bucketed)
                }
                index = isLast ? rollout.rules.count : rollout.rules.count - 1
            } else {
                index += 1
            }
        }
        return .nothing
    }

    /// - Parameter name: the number of the rule; `nil` for the one for everyone else.
    private func deliveryAdmits(to rule: Experiment, name: Int?) -> Bool {
        guard admits(rule.audience, to: "rule \"\(rule.key)\"") else {
            if let name {
                reasons.add("User \"\(user.id)\" does not meet conditions for targeting rule \(name).")
            }
            return false
        }
        reasons.add("Audiences for experiment \(rule.key) collectively evaluated to true.")
        noteInvalidBucketingID(for: "experiment \"\(rule.key)\"")
        if name == nil {
            reasons.add("User \"\(user.id)\" meets conditions for targeting rule \"Everyone Else\".")
        }
        return true
    }
}
