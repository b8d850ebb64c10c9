import Bucketing
import JSON

extension FlagChange {
    /// Returns the rules after the change: the former ones, with the members in the body.
    ///
    /// - Throws: 422 with every inconsistency in the result.
    func merged(
        into former: FlagDefinition.Rules, _ definitions: ProjectDefinitions
    ) throws(CoreError) -> FlagDefinition.Rules {
        var faults = FaultCollector()
        var merged = former
        mergeVariations(into: &merged, &faults)
        let known = Set(merged.variations.map(\.key))
        mergeOtherwise(into: &merged, known, &faults)
        if let rules { merged.rules = mergedRules(rules, former, definitions, &faults) }
        checkVariations(of: merged, known, definitions, &faults)
        checkOrder(of: merged, &faults)
        try faults.check()
        return merged
    }

    /// Sets the variations, by default `on` and `off` for a new boolean flag, and checks their values.
    private func mergeVariations(into merged: inout FlagDefinition.Rules, _ faults: inout FaultCollector) {
        if let variations {
            merged.variations = variations
        } else if merged.variations.isEmpty {
            if merged.type == .boolean {
                merged.variations = [.init(key: "on", value: true), .init(key: "off", value: false)]
            } else {
                faults.add("a new \(merged.type.rawValue) flag must have `variations`", at: ["variations"])
            }
        }
        for (index, variation) in merged.variations.enumerated() where !merged.type.admits(variation.value) {
            faults.add(
                merged.type.refusal(of: variation.value),
                at: JSONPointer().appending("variations").appending(index).appending("value"))
        }
    }

    /// Sets the variation of users to whom no rule applies: for a new flag by default the one with the value `false`,
    /// or else the first one.
    private func mergeOtherwise(
        into merged: inout FlagDefinition.Rules, _ known: Set<Identifier>, _ faults: inout FaultCollector
    ) {
        if let otherwise {
            merged.otherwise = otherwise
        } else if merged.otherwise == "" {
            let off = merged.variations.first { $0.value == false }
            merged.otherwise = (off ?? merged.variations.first)?.key ?? ""
        }
        if !merged.variations.isEmpty, !known.contains(merged.otherwise) {
            faults.add(FlagRules.unknownOtherwise(merged.otherwise, known), at: ["otherwise"])
        }
    }

    /// Returns the rules of the body, each with a key. The body may leave out the key of a delivery. It may leave out
    /// the key of an experiment, if the flag has only one experiment.
    private func mergedRules(
        _ rules: [FlagView.Rule], _ former: FlagDefinition.Rules, _ definitions: ProjectDefinitions,
        _ faults: inout FaultCollector
    ) -> [FlagDefinition.Rule] {
        var merged: [FlagDefinition.Rule] = []
        var keys: Set<Identifier> = []
        var hasUnnamedExperiment = false
        for (index, rule) in rules.enumerated() {
            let place = JSONPointer().appending("rules").appending(index).appending("key")
            let delivery = rule.delivery
            if rule.key == nil, delivery == nil {
                if hasUnnamedExperiment {
                    faults.add(
                        "`key` is required in a flag with several experiments, because it identifies the experiment",
                        at: place)
                }
                hasUnnamedExperiment = true
            }
            let ruleKey = rule.key ?? defaultKey(isDelivery: delivery != nil, at: index)
            if !keys.insert(ruleKey).inserted {
                faults.add("the keys of rules must differ; got '\(ruleKey)' twice", at: place)
            }
            if !isFree(ruleKey, isDelivery: delivery != nil, former, definitions) {
                faults.add(
                    "the key of a rule must be free in the project; an experiment, a rule or a flag has '\(ruleKey)'",
                    at: place)
            }
            merged.append(FlagDefinition.Rule(key: ruleKey, audience: rule.audience, delivery: delivery))
        }
        return merged
    }

    /// Returns the key of a rule that has none in the body. That of an experiment does not depend on the place of the
    /// rule, so that its users keep their variations if the rule is moved.
    private func defaultKey(isDelivery: Bool, at index: Int) -> Identifier {
        Identifier(isDelivery ? "\(key)_rule_\(index + 1)" : "\(key)_experiment")
    }

    /// Whether a rule may have a key. Any rule may have a key that nothing else in the project has, or the key of a
    /// former delivery of this flag. A rule that is an experiment may also have the key of an experiment that belongs
    /// to this flag. A rule that is a delivery may also have the key of a flag, because a delivery is not served as a
    /// flag.
    private func isFree(
        _ ruleKey: Identifier, isDelivery: Bool, _ former: FlagDefinition.Rules, _ definitions: ProjectDefinitions
    ) -> Bool {
        guard (1...255).contains(ruleKey.string.utf8.count) else { return false }
        if let experiment = definitions.experiments[ruleKey] {
            return !isDelivery && experiment.flagKey == Identifier(key)
        }
        if former.rules.contains(where: { $0.delivery != nil && $0.key == ruleKey }) { return true }
        let isKeyOfOtherFlag = ruleKey != Identifier(key) && definitions.flags[ruleKey] != nil
        return definitions.deliveryRule("key", ruleKey) == nil && (isDelivery || !isKeyOfOtherFlag)
    }

    /// Checks that all rules have variations of the flag. Rules that the body does not change are checked, too, because
    /// the body may remove one of their variations.
    private func checkVariations(
        of merged: FlagDefinition.Rules, _ known: Set<Identifier>, _ definitions: ProjectDefinitions,
        _ faults: inout FaultCollector
    ) {
        for (index, rule) in merged.rules.enumerated() {
            let place = JSONPointer().appending("rules").appending(index)
            var used: [(key: Identifier, place: JSONPointer)] = []
            if let delivery = rule.delivery {
                used = [(delivery.variation, place.appending("variation"))]
            } else if let given = rules?[index], case .experiment(let experiment) = given.choice,
                experiment.has("weights")
            {
                used = given.namedVariations(at: place)
            } else if let experiment = definitions.experiments[rule.key] {
                used = experiment.variations.map { ($0.key, place) }
            }
            for (variation, place) in used where !known.contains(variation) {
                faults.add(FlagRules.unknownVariation(variation, known), at: place)
            }
        }
    }

    /// Checks that no rule comes after a delivery without an audience. Such a rule would never be reached.
    private func checkOrder(of merged: FlagDefinition.Rules, _ faults: inout FaultCollector) {
        guard let first = merged.rules.firstIndex(where: { $0.delivery != nil && $0.audience == nil }),
            first + 1 < merged.rules.count
        else { return }
        faults.add(
            "the rule before, '\(merged.rules[first].key)', must have an audience, because no rule after a rule for "
                + "everybody is ever reached", at: JSONPointer().appending("rules").appending(first + 1))
    }
}

extension FlagView.Rule {
    /// The delivery of a rule in a body; `nil` for an experiment, or for a delivery without a variation.
    fileprivate var delivery: FlagDefinition.Delivery? {
        guard case .delivery(let variation?, let traffic) = choice else { return nil }
        return FlagDefinition.Delivery(variation: variation, traffic: traffic)
    }
}
