import Bucketing
import JSON

extension FlagDefinition {
    /// Returns the flag after the change: the former flag with the members of the definition.
    ///
    /// - Throws: 422 with every inconsistency in the result.
    func merged(
        into former: FlagState, _ editor: DatafileEditor, _ datafile: Datafile?
    ) throws(CoreError) -> FlagState {
        var faults = FaultCollector()
        var state = former
        state.isEnabled = isEnabled ?? former.isEnabled
        state.description = description ?? former.description
        state.tags = tags ?? former.tags
        if let variations {
            state.variations = variations
        } else if former.variations.isEmpty {
            if former.type == .boolean {
                state.variations = [Variation(key: "on", value: true), Variation(key: "off", value: false)]
            } else {
                faults.add("a new \(former.type.rawValue) flag must have `variations`", at: ["variations"])
            }
        }
        for (index, variation) in state.variations.enumerated() where !state.type.admits(variation.value) {
            faults.add(
                state.type.refusal(of: variation.value),
                at: JSONPointer().appending("variations").appending(index).appending("value"))
        }
        let known = Set(state.variations.map { Identifier($0.key) })
        if let otherwise {
            state.otherwise = otherwise
        } else if former.otherwise.isEmpty {
            let isOff = { (variation: Variation) in variation.value == false }
            state.otherwise = (state.variations.first(where: isOff) ?? state.variations.first)?.key ?? ""
        }
        if !state.variations.isEmpty, !known.contains(Identifier(state.otherwise)) {
            faults.add(Self.unknownOtherwise(state.otherwise, known), at: ["otherwise"])
        }
        if let rules { state.rules = self.states(of: rules, former, editor, datafile, &faults) }
        checkVariations(of: state, known, datafile, &faults)
        checkOrder(of: state, &faults)
        try faults.check()
        return state
    }

    private func states(
        of rules: [Rule], _ former: FlagState, _ editor: DatafileEditor, _ datafile: Datafile?,
        _ faults: inout FaultCollector
    ) -> [FlagState.Rule] {
        var states: [FlagState.Rule] = []
        var keys: Set<Identifier> = []
        var hasUnnamedExperiment = false
        for (index, rule) in rules.enumerated() {
            let place = JSONPointer().appending("rules").appending(index)
            var delivery: (variation: String, traffic: Double)?
            if case .delivery(let variation, let traffic) = rule.choice { delivery = (variation, traffic) }
            if rule.key == nil, delivery == nil {
                if hasUnnamedExperiment {
                    faults.add(
                        "`key` is required in a flag with several experiments, because it identifies the experiment",
                        at: place.appending("key"))
                }
                hasUnnamedExperiment = true
            }
            let ruleKey = rule.key ?? (delivery == nil ? "\(key)_experiment" : "\(key)_rule_\(index + 1)")
            if !keys.insert(Identifier(ruleKey)).inserted {
                faults.add("the keys of rules must differ; got '\(ruleKey)' twice", at: place.appending("key"))
            }
            if !isFree(ruleKey, isDelivery: delivery != nil, former, editor, datafile) {
                faults.add(
                    "the key of a rule must be free in the project; an experiment, a rule or a flag has '\(ruleKey)'",
                    at: place.appending("key"))
            }
            states.append(FlagState.Rule(key: ruleKey, audience: rule.audience, delivery: delivery))
        }
        return states
    }

    /// Whether a rule may have a key: nothing has it, or this flag's experiment, or its delivery.
    private func isFree(
        _ ruleKey: String, isDelivery: Bool, _ former: FlagState, _ editor: DatafileEditor, _ datafile: Datafile?
    ) -> Bool {
        guard (1...255).contains(ruleKey.utf8.count) else { return false }
        if let experiment = editor.experiment(key: Identifier(ruleKey)) {
            return !isDelivery && experiment[Annotations.member]?.object?["flag"] == .string(key)
        }
        if former.rules.contains(where: { $0.delivery != nil && Identifier($0.key) == Identifier(ruleKey) }) {
            return true
        }
        let isOfFlag = ruleKey != key && editor.element(of: .flags, "key", ruleKey) != nil
        return datafile?.experiment(key: Identifier(ruleKey)) == nil && (isDelivery || !isOfFlag)
    }

    /// Checks that each rule's variations are the flag's: also those of rules that stay as they are.
    private func checkVariations(
        of state: FlagState, _ known: Set<Identifier>, _ datafile: Datafile?, _ faults: inout FaultCollector
    ) {
        for (index, rule) in state.rules.enumerated() {
            let place = JSONPointer().appending("rules").appending(index)
            var used: [(key: String, place: JSONPointer)] = []
            if let delivery = rule.delivery {
                used = [(delivery.variation, place.appending("variation"))]
            } else if case .experiment(let experiment)? = rules?[index].choice, experiment.weights != nil {
                used = Choice.experiment(experiment).namedVariations(at: place)
            } else if let experiment = datafile?.experiment(key: Identifier(rule.key)) {
                used = experiment.variations.map { ($0.key.string, place) }
            }
            for (variation, place) in used where !known.contains(Identifier(variation)) {
                faults.add(Self.unknownVariation(variation, known), at: place)
            }
        }
    }

    /// A rule behind a delivery for everybody would never be reached.
    private func checkOrder(of state: FlagState, _ faults: inout FaultCollector) {
        guard let first = state.rules.firstIndex(where: { $0.delivery != nil && $0.audience == nil }),
            first + 1 < state.rules.count
        else { return }
        faults.add(
            "the rule before, '\(state.rules[first].key)', must have an audience, because no rule after a rule for "
                + "everybody is ever reached", at: JSONPointer().appending("rules").appending(first + 1))
    }
}

/// Conditions that a user meets exactly if the user does not meet an audience.
///
/// `not` alone does not suffice: where an attribute is missing, the audience is unknown, and so is its negation. A
/// user whose attribute has another type than the audience compares is in neither.
enum AudienceExclusion {
    static func outside(_ audience: JSONValue) -> JSONValue {
        outside(audience, negated: true)
    }

    /// - Parameter negated: whether to return the conditions of those for whom the audience is false or unknown, or of
    ///   those for whom it is true or unknown.
    private static func outside(_ conditions: JSONValue, negated: Bool) -> JSONValue {
        guard let list = conditions.array else { return leaf(conditions, negated: negated) }
        let name = list.first?.string
        if name == "not" { return list.count > 1 ? outside(list[1], negated: !negated) : conditions }
        let operands = (name == "and" || name == "or" ? Array(list.dropFirst()) : list)
        let isConjunction = (name == "and") != negated
        return .array([isConjunction ? "and" : "or"] + operands.map { outside($0, negated: negated) })
    }

    private static func leaf(_ leaf: JSONValue, negated: Bool) -> JSONValue {
        guard let object = leaf.object else { return leaf }
        if let segment = object["segment"] {
            let outside: JSONValue = ["segment": segment, "match": "outside"]
            // Holdfast alone knows segments; to SDKs both are unknown.
            return negated ? outside : leaf
        }
        let condition: JSONValue = negated ? ["not", leaf] : leaf
        let match = object["match"]?.string
        if match == "exists" || match == "qualified" { return condition }
        let exists: JSONValue = [
            "type": object["type"] ?? "custom_attribute", "name": object["name"] ?? "", "match": "exists",
        ]
        return ["or", condition, ["not", exists]]
    }
}
