public import Bucketing
import Definitions
public import JSON

extension Flag {
    /// The response of `GET /v1/flags/{key}`.
    ///
    /// - Parameters:
    ///   - datafile: the one that has the flag.
    ///   - definitions: what the datafile defines.
    public func description(in datafile: Datafile, _ definitions: ProjectDefinitions, sdkKey: String) -> JSONValue {
        let definition = definitions.flags[key] ?? FlagDefinition(key: key, .experiment)
        let servesExperiment = definition.content == .experiment
        var object = JSONObject()
        object["key"] = JSONValue(key)
        object["type"] = FlagEvaluation.type(of: self).map { .string($0.rawValue) } ?? .null
        object["enabled"] = .bool(definition.isEnabled && !(servesExperiment && isOff))
        object["description"] = .string(definition.description)
        object["tags"] = JSONValue(definition.tags ?? [])
        if let rules = definition.rules {
            object["variations"] = rules.variationsJSON
            object["rules"] = .array(rules.rules.map { Self.describe($0, datafile, definitions) })
            object["otherwise"] = JSONValue(rules.otherwise)
        } else {
            object["variations"] = .array(uniqueVariations.map { describe($0) })
            object["rules"] = .array(rulesOfDatafile(datafile, definitions))
            object["otherwise"] = lastRule.flatMap { Self.delivered(by: $0) } ?? .null
        }
        object["defined_by"] = .string(definer(in: definitions))
        object["version"] = .integer(definition.version ?? Int64(datafile.revision) ?? 0)
        object["sdk_key"] = .string(sdkKey)
        object["revision"] = .string(datafile.revision)
        return .object(object)
    }

    /// Who defines the flag: `flag`, `experiment` or `datafile`.
    public func definer(in definitions: ProjectDefinitions) -> String {
        guard let definition = definitions.flags[key] else { return "experiment" }
        return definition.rules != nil ? "flag" : definition.content == .experiment ? "experiment" : "datafile"
    }

    // MARK: Flags of the API

    private static func describe(
        _ rule: FlagDefinition.Rule, _ datafile: Datafile, _ definitions: ProjectDefinitions
    ) -> JSONValue {
        var object = JSONObject()
        object["key"] = JSONValue(rule.key)
        object["audience"] = rule.audience ?? .null
        if let delivery = rule.delivery {
            object["variation"] = JSONValue(delivery.variation)
            object["traffic"] = .shortest(delivery.traffic)
        } else if let experiment = datafile.experiment(key: rule.key) {
            object["experiment"] = describe(experiment, datafile, definitions)
        }
        return .object(object)
    }

    /// An experiment as `PUT /v1/flags/{key}` takes it.
    private static func describe(
        _ experiment: Experiment, _ datafile: Datafile, _ definitions: ProjectDefinitions
    ) -> JSONValue {
        var view = experiment.view(in: datafile, definitions)
        // What runs again when the flag is enabled counts as running.
        view.definition.status = definitions.experiments[experiment.key]?.status ?? experiment.status
        var object = JSONObject()
        FlagDefinition.experimentMembers.show(view, in: &object)
        return .object(object)
    }

    // MARK: Flags of datafiles

    /// The variations of all rules, each key once.
    private var uniqueVariations: [Variation] {
        var seen: Set<Identifier> = []
        return variations.filter { seen.insert($0.key).inserted }
    }

    private func describe(_ variation: Variation) -> JSONValue {
        let values = values(for: variation)
        let value: JSONValue
        if variables.isEmpty {
            value = .bool(variation.isFeatureEnabled)
        } else if FlagEvaluation.type(of: self) != nil {
            value = values.first?.value ?? .null
        } else {
            var object = JSONObject()
            for variable in values { object[variable.key.string] = variable.value }
            value = .object(object)
        }
        return ["key": .string(variation.key.string), "value": value]
    }

    private func rulesOfDatafile(_ datafile: Datafile, _ definitions: ProjectDefinitions) -> [JSONValue] {
        let experiments = experiments.map { experiment -> JSONValue in
            [
                "key": .string(experiment.key.string), "audience": Self.audience(of: experiment),
                "experiment": Self.describe(experiment, datafile, definitions),
            ]
        }
        let last = lastRule?.id
        let deliveries = (rollout?.rules ?? []).filter { $0.id != last }.map { rule -> JSONValue in
            [
                "key": .string(rule.key.string), "audience": Self.audience(of: rule),
                "variation": Self.delivered(by: rule) ?? .null, "traffic": .shortest(rule.traffic),
            ]
        }
        return experiments + deliveries
    }

    /// The delivery for everybody else.
    private var lastRule: Experiment? {
        rollout?.rules.last.flatMap { $0.isForEverybody ? $0 : nil }
    }

    /// The ids of audiences.
    private static func audience(of rule: Experiment) -> JSONValue {
        rule.isForEverybody ? .null : rule.audienceConditions
    }

    private static func delivered(by rule: Experiment) -> JSONValue? {
        let id = rule.trafficAllocation.ranges.first { !$0.entityID.string.isEmpty }?.entityID
        return id.flatMap { rule.variation(id: $0) }.map { .string($0.key.string) }
    }
}
