extension DecisionRun {
    /// Decides a flag, and adds its decision events.
    func decision(on flag: Flag) -> Decision {
        reasons = Reasons(detail)
        let outcome = evaluate(flag)
        let isEnabled = outcome.variation?.isFeatureEnabled ?? false
        addImpressions(of: outcome, flag, isEnabled)
        let variables = options.contains(.excludeVariables) ? .none : flag.variables(for: outcome.variation)
        return Decision(
            flagKey: flag.key, ruleKey: outcome.rule?.key, ruleType: outcome.type, variation: outcome.variation,
            isEnabled: isEnabled, variables: variables.values,
            reasons: variables.problems.isEmpty ? reasons.texts : variables.problems + reasons.texts,
            source: outcome.source
        )
    }

    /// Finds the rule that decides a flag, like `get_decision_for_flag` of Optimizely's Python SDK. The first of these
    /// that applies decides: a forced decision of the request, a global holdout, an experiment, a delivery rule.
    ///
    /// A global holdout may exempt targeted deliveries. Then they are still evaluated, and no other experiment is.
    private func evaluate(_ flag: Flag) -> FlagOutcome {
        if let variation = forcedVariation(of: flag, rule: nil) {
            return FlagOutcome(rule: nil, type: .featureTest, variation: variation, source: .requested)
        }
        var exempting: (holdout: Holdout, variation: Variation)?
        for holdout in datafile.globalHoldouts {
            guard let variation = variation(of: holdout, rule: nil) else { continue }
            guard holdout.excludesTargetedDeliveries else { return FlagOutcome(heldOutBy: holdout, variation) }
            reasons.add(
                "Holdout '\(holdout.key)' excludes targeted deliveries. Targeted delivery rules will be evaluated."
            )
            exempting = (holdout, variation)
            break
        }
        for experiment in flag.experiments where exempting == nil || experiment.isTargetedDelivery {
            if var outcome = evaluate(experiment, of: flag) {
                outcome.exemptingHoldout = exempting
                return outcome
            }
        }
        var outcome = evaluateRollout(of: flag)
        outcome.exemptingHoldout = exempting
        return outcome
    }

    /// Evaluates an experiment as a rule of a flag: a forced decision and local holdouts take precedence over the
    /// experiment.
    ///
    /// - Returns: `nil` if the user gets no variation of the experiment.
    private func evaluate(_ experiment: Experiment, of flag: Flag) -> FlagOutcome? {
        if let variation = forcedVariation(of: flag, rule: experiment) {
            return FlagOutcome(
                rule: .experiment(experiment), type: .featureTest, variation: variation, source: .requested)
        }
        if let held = localHoldout(ofRule: experiment) {
            return FlagOutcome(heldOutBy: held.holdout, held.variation)
        }
        let outcome = evaluate(experiment)
        guard outcome.variation != nil else { return nil }
        return FlagOutcome(
            rule: .experiment(experiment), type: .featureTest, variation: outcome.variation, source: outcome.source
        )
    }

    /// Returns the variation that the request forces. `nil` if it forces none, or if the flag does not have the
    /// variation.
    ///
    /// - Parameter rule: `nil` for the flag as a whole.
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

    /// Adds the decision events that Optimizely's Python SDK sends. Experiments and holdouts always have one. Delivery
    /// rules have one only if the datafile says so. A holdout that exempts the rule has one in addition to that of the
    /// rule.
    private func addImpressions(of outcome: FlagOutcome, _ flag: Flag, _ isEnabled: Bool) {
        guard !options.contains(.disableDecisionEvent) else { return }
        if let exempting = outcome.exemptingHoldout, outcome.type != .holdout {
            add(
                Impression(
                    flagKey: flag.key, rule: .holdout(exempting.holdout), ruleType: Decision.RuleType.holdout.rawValue,
                    variation: exempting.variation, isEnabled: exempting.variation.isFeatureEnabled, source: .holdout
                ))
        }
        if outcome.type != .rollout || datafile.sendsFlagDecisions {
            add(
                Impression(
                    flagKey: flag.key, rule: outcome.rule, ruleType: outcome.type.rawValue,
                    variation: outcome.variation, isEnabled: isEnabled, source: outcome.source
                ))
        }
    }
}

// MARK: - Delivery rules

extension DecisionRun {
    /// Evaluates the delivery rules, like `get_variation_for_rollout` of Optimizely's Python SDK: the first rule whose
    /// audience admits the user decides. A user outside that rule's traffic gets the last rule, which is for everyone
    /// else.
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
                return FlagOutcome(rule: .experiment(rule), type: .rollout, variation: variation, source: .requested)
            }
            if let held = localHoldout(ofRule: rule) {
                return FlagOutcome(heldOutBy: held.holdout, held.variation)
            }
            if deliveryAdmits(to: rule, number: isLast ? nil : index + 1) {
                // A contextual bandit gives no variation here, because SDKs request no predictions for delivery rules.
                if rule.gate == nil, let variation = bucket(into: rule) {
                    return FlagOutcome(rule: .experiment(rule), type: .rollout, variation: variation, source: .bucketed)
                }
                // After the last rule this ends the loop. After any other rule, the rule for everyone else is next.
                index = isLast ? rollout.rules.count : rollout.rules.count - 1
            } else {
                index += 1
            }
        }
        return .nothing
    }

    /// Whether the audience of a delivery rule admits the user.
    ///
    /// - Parameter number: the place of the rule, from 1; `nil` for the last rule, which is for everyone else.
    private func deliveryAdmits(to rule: Experiment, number: Int?) -> Bool {
        guard admits(rule.audience, to: "rule \"\(rule.key)\"") else {
            if let number {
                reasons.add("User \"\(user.id)\" does not meet conditions for targeting rule \(number).")
            }
            return false
        }
        reasons.add("Audiences for experiment \(rule.key) collectively evaluated to true.")
        explainInvalidBucketingID(for: "experiment \"\(rule.key)\"")
        if number == nil {
            reasons.add("User \"\(user.id)\" meets conditions for targeting rule \"Everyone Else\".")
        }
        return true
    }
}

// MARK: - Holdouts

extension DecisionRun {
    /// Evaluates a holdout: returns its variation if it keeps the user out. Also records the step and the reasons, and
    /// may add the exposure of a user who is in the audience but not held out.
    ///
    /// - Parameter rule: the rule that a local holdout is evaluated for; `nil` for a global holdout.
    func variation(of holdout: Holdout, rule: Experiment?) -> Variation? {
        guard !user.isUnidentified else { return nil }
        let kind = rule == nil ? "holdout" : "local holdout"
        let key = holdout.key
        let admits = admits(holdout.audience, to: "holdout \"\(holdout.key)\"")
        reasons.add("Audiences for holdout \(key) collectively evaluated to \(admits).")
        guard admits else {
            reasons.add("User \(user.id) does not meet conditions for \(kind) \(key).")
            record(.holdout(holdout, step(holdout.audience, admits: false), nil, nil))
            return nil
        }
        reasons.add("User \(user.id) meets conditions for \(kind) \(key).")
        explainInvalidBucketingID(for: "\(kind) \"\(key)\"")
        let result = holdout.isBucketed ? bucket(below: holdout.id, holdout.trafficAllocation) : nil
        let variation = result?.entityID.flatMap { holdout.variations.variation(id: $0) }
        if variation == nil { addRestImpression(of: holdout) }
        record(
            .holdout(
                holdout, step(holdout.audience, admits: true),
                result.map { step($0, below: holdout.id, holdout.trafficAllocation) }, variation))
        switch (variation, rule) {
        case (let variation?, let rule?):
            reasons.add("User \(user.id) is in variation \(variation.key) of \(kind) \(key) for rule \(rule.id).")
        case (let variation?, nil):
            reasons.add("User \(user.id) is in variation \(variation.key) of \(kind) \(key).")
        case (nil, let rule?):
            reasons.add("User \(user.id) is not bucketed into \(kind) \(key) for rule \(rule.id).")
        case (nil, nil):
            reasons.add("User \(user.id) is in no holdout variation.")
        }
        return variation
    }

    /// Adds the exposure of a user of the rest: the users in the audience of a holdout who are not held out. Results
    /// compare the users held out with the rest. Only for holdouts that were defined over the API, and once per run.
    private func addRestImpression(of holdout: Holdout) {
        guard let rest = holdout.rest, !options.contains(.disableDecisionEvent),
            !impressions.contains(where: { $0.experimentID == holdout.id })
        else { return }
        add(
            Impression(
                flagKey: "", rule: .holdout(holdout), ruleType: Decision.RuleType.holdout.rawValue, variation: rest,
                isEnabled: true, source: .holdout))
    }

    /// Returns the first local holdout of a rule that keeps the user out.
    func localHoldout(ofRule rule: Experiment) -> (holdout: Holdout, variation: Variation)? {
        for holdout in datafile.localHoldouts(ofRule: rule.id) {
            if let variation = variation(of: holdout, rule: rule) { return (holdout, variation) }
        }
        return nil
    }
}
