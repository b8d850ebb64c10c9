public import Bucketing
public import JSON

extension Flag {
    /// The response of `GET /v1/flags/{key}`.
    ///
    /// - Parameter compiled: the definitions that contain the flag.
    public func description(in compiled: CompiledDefinitions, sdkKey: String) -> JSONValue {
        let datafile = compiled.datafile
        let definitions = compiled.definitions
        let view = view(in: datafile, definitions)
        var object = JSONObject()
        object["key"] = JSONValue(key)
        FlagView.members.show(view, in: &object)
        object["defined_by"] = .string(definer(in: definitions))
        object["version"] = .integer(view.definition.version ?? Int64(datafile.revision) ?? 0)
        object["sdk_key"] = .string(sdkKey)
        object["revision"] = .string(datafile.revision)
        return .object(object)
    }

    /// Returns the flag as people see it.
    private func view(in datafile: Datafile, _ definitions: ProjectDefinitions) -> FlagView {
        var view = FlagView(definitions.flags[key] ?? FlagDefinition(key: key, .experiment))
        if view.definition.content == .experiment, isOff { view.definition.isEnabled = false }
        view.type = FlagEvaluation.type(of: self)
        if let rules = view.definition.rules {
            view.variations = rules.variations
            view.rules = rules.rules.map { Self.view(of: $0, datafile, definitions) }
            view.otherwise = rules.otherwise
        } else {
            view.variations = uniqueVariations.map { FlagDefinition.Variation(key: $0.key, value: value(of: $0)) }
            view.rules = rulesOfDatafile(datafile, definitions)
            view.otherwise = lastRule.flatMap { Self.delivered(by: $0) }
        }
        return view
    }

    /// Returns by which route the flag is changed: `flag` for `PUT /v1/flags`, `experiment` for `PUT /v1/experiments`,
    /// or `datafile` for an upload.
    public func definer(in definitions: ProjectDefinitions) -> String {
        guard let definition = definitions.flags[key] else { return "experiment" }
        switch definition.content {
        case .rules: return "flag"
        case .experiment: return "experiment"
        case .datafile: return "datafile"
        }
    }

    // MARK: When it was used

    /// The members of a flag and of its variations that show when they were last used. A `PUT` ignores them.
    private static let useMembers = ["last_evaluated_on", "last_exposed_on"]

    /// Returns the body of a `PUT` without the members that show when the flag was last used.
    static func withoutUses(_ body: JSONValue) -> JSONValue {
        guard var object = body.object else { return body }
        for member in useMembers { object[member] = nil }
        if let variations = object["variations"]?.array {
            object["variations"] = .array(
                variations.map { variation in
                    guard var member = variation.object else { return variation }
                    for name in useMembers { member[name] = nil }
                    return .object(member)
                })
        }
        return .object(object)
    }

    // MARK: Flags of the API

    private static func view(
        of rule: FlagDefinition.Rule, _ datafile: Datafile, _ definitions: ProjectDefinitions
    ) -> FlagView.Rule {
        let choice: FlagView.Choice? =
            if let delivery = rule.delivery {
                .delivery(variation: delivery.variation, traffic: delivery.traffic)
            } else {
                datafile.experiment(key: rule.key).map { Self.choice(of: $0, datafile, definitions) }
            }
        return FlagView.Rule(key: rule.key, audience: rule.audience, choice: choice)
    }

    /// Returns an experiment as the rule of a flag shows it.
    private static func choice(
        of experiment: Experiment, _ datafile: Datafile, _ definitions: ProjectDefinitions
    ) -> FlagView.Choice {
        var view = experiment.view(in: datafile, definitions)
        // An experiment that is paused only because the flag is off is shown as running.
        view.definition.status = definitions.experiments[experiment.key]?.status ?? experiment.status
        return .experiment(Given(draft: view))
    }

    // MARK: Flags of datafiles

    /// The variations of all rules, each key once.
    private var uniqueVariations: [Variation] {
        var seen: Set<Identifier> = []
        return variations.filter { seen.insert($0.key).inserted }
    }

    /// Returns the value of a variation. With the single variable `value` this is the value of the variable. With other
    /// variables it is an object of their values, and without variables whether the variation is enabled.
    private func value(of variation: Variation) -> JSONValue {
        let values = values(for: variation)
        if variables.isEmpty { return .bool(variation.isFeatureEnabled) }
        if FlagEvaluation.type(of: self) != nil { return values.first?.value ?? .null }
        var object = JSONObject()
        for variable in values { object[variable.key.string] = variable.value }
        return .object(object)
    }

    /// Returns the rules of a flag of an uploaded datafile: its experiments, then its deliveries without the last one
    /// for everybody, which is shown as `otherwise`.
    private func rulesOfDatafile(_ datafile: Datafile, _ definitions: ProjectDefinitions) -> [FlagView.Rule] {
        let experiments = experiments.map { experiment in
            FlagView.Rule(
                key: experiment.key, audience: Self.audience(of: experiment),
                choice: Self.choice(of: experiment, datafile, definitions))
        }
        let last = lastRule?.id
        let deliveries = (rollout?.rules ?? []).filter { $0.id != last }.map { rule in
            FlagView.Rule(
                key: rule.key, audience: Self.audience(of: rule),
                choice: .delivery(variation: Self.delivered(by: rule), traffic: rule.traffic))
        }
        return experiments + deliveries
    }

    /// The delivery for everybody to whom no other rule applies; `nil` if there is none.
    private var lastRule: Experiment? {
        rollout?.rules.last.flatMap { $0.isForEverybody ? $0 : nil }
    }

    /// Returns the audience conditions of a rule, which name audiences by their ids; null for everybody.
    private static func audience(of rule: Experiment) -> JSONValue {
        rule.isForEverybody ? .null : rule.audienceConditions
    }

    /// Returns the key of the variation that a delivery gives to users.
    private static func delivered(by rule: Experiment) -> Identifier? {
        let id = rule.trafficAllocation.ranges.first { !$0.entityID.string.isEmpty }?.entityID
        return id.flatMap { rule.variation(id: $0) }?.key
    }
}
