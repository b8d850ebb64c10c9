extension DecisionRun {
    func decide(_ flag: Flag) -> Decision {
        reasons = Reasons(detail)
        let outcome = evaluate(flag)
        if let bandit = outcome.failedBandit { return failure(of: flag, bandit) }
        let isEnabled = outcome.variation?.isFeatureEnabled ?? false
        sendImpressions(of: outcome, flag, isEnabled)
        let variables = options.contains(.excludeVariables) ? .none : flag.variables(for: outcome.variation)
        return Decision(
            flagKey: flag.key, ruleKey: outcome.rule?.key, ruleType: outcome.type, variation: outcome.variation,
            isEnabled: isEnabled, variables: variables.values,
            reasons: variables.problems.isEmpty ? reasons.texts : variables.problems + reasons.texts,
            origin: outcome.origin, hasFailed: false
        )
    }

    private func failure(of flag: Flag, _ bandit: Experiment) -> Decision {
        Decision(
            flagKey: flag.key, ruleKey: nil, ruleType: .featureTest, variation: nil, isEnabled: false, variables: [],
            reasons: [Self.unavailablePredictionReason(bandit)], origin: .none, hasFailed: true
        )
    }

    /// The reference SDK's `get_decision_for_flag`: forced, global holdouts, experiments, delivery rules.
    private func evaluate(_ flag: Flag) -> FlagOutcome {
        if let variation = forcedVariation(of: flag, rule: nil) {
            return FlagOutcome(rule: nil, type: .featureTest, variation: variation, origin: .forced)
        }
        var sparing: (holdout: Holdout, variation: Variation)?
        for holdout in datafile.globalHoldouts {
            guard let variation = variation(of: holdout, rule: nil) else { continue }
            guard holdout.excludesTargetedDeliveries else { return FlagOutcome(heldOutBy: holdout, variation) }
            reasons.add(
                "Holdout '\(holdout.key)' excludes targeted deliveries. Targeted delivery rules will be evaluated."
            )
            sparing = (holdout, variation)
            break
        }
        for experiment in flag.experiments where sparing == nil || experiment.isTargetedDelivery {
            if var outcome = evaluate(experiment, of: flag) {
                outcome.sparingHoldout = sparing
                return outcome
            }
        }
        var outcome = evaluateRollout(of: flag)
        outcome.sparingHoldout = sparing
        return outcome
    }

    /// - Returns: `nil` if the experiment is not for the user.
    private func evaluate(_ experiment: Experiment, of flag: Flag) -> FlagOutcome? {
        if let variation = forcedVariation(of: flag, rule: experiment) {
            return FlagOutcome(rule: .experiment(experiment), type: .featureTest, variation: variation, origin: .forced)
        }
        if let held = localHoldout(ofRule: experiment) {
            return FlagOutcome(heldOutBy: held.holdout, held.variation)
        }
        let outcome = evaluate(experiment)
        guard outcome.hasFailed || outcome.variation != nil else { return nil }
        var flagOutcome = FlagOutcome(
            rule: .experiment(experiment), type: .featureTest, variation: outcome.variation, origin: outcome.origin
        )
        flagOutcome.failedBandit = outcome.hasFailed ? experiment : nil
        return flagOutcome
    }

    /// The variation that the caller demands, if the flag has it.
    ///
    /// - Parameter rule: `nil` for what is demanded of the flag as a whole.
    func forcedVariation(of flag: Flag, rule: Experiment?) -> Variation? {
        guard !user.forcedDecisions.isEmpty,
            let key = user.forcedVariationKey(flag: flag.key, rule: rule?.key)
        else { return nil }
        let target = rule.map { "flag (\(flag.key)), rule (\($0.key))" } ?? "flag (\(flag.key))"
        guard let variation = flag.variations.first(where: { $0.key == key }) else {
            reasons.add("Invalid variation is mapped to \(target) and user (\(user.id)) in the forced decision map.")
            return nil
        }
        reasons.add("Variation (\(key)) is mapped to \(target) and user (\(user.id)) in the forced decision map.")
        return variation
    }

    /// The reference sends one for experiments and holdouts, for delivery rules only if the datafile says so, and
    /// one more for a holdout that spared the rule.
    private func sendImpressions(of outcome: FlagOutcome, _ flag: Flag, _ isEnabled: Bool) {
        guard !options.contains(.disableDecisionEvent) else { return }
        if let sparing = outcome.sparingHoldout, outcome.type != .holdout {
            send(Impression(
                flagKey: flag.key, rule: .holdout(sparing.holdout), ruleType: Decision.RuleType.holdout.rawValue,
                variation: sparing.variation, isEnabled: sparing.variation.isFeatureEnabled, origin: .holdout
            ))
        }
        if outcome.type != .rollout || datafile.sendsFlagDecisions {
            send(Impression(
                flagKey: flag.key, rule: outcome.rule, ruleType: outcome.type.rawValue,
                variation: outcome.variation, isEnabled: isEnabled, origin: outcome.origin
            ))
        }
    }
}
