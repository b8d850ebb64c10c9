public import Bucketing
public import JSON

extension Flag {
    /// The response of `GET /v1/flags/{key}`.
    ///
    /// - Parameter datafile: the one that has the flag.
    public func description(in datafile: Datafile, sdkKey: String) -> JSONValue {
        let revision = datafile.revision
        let annotations = annotations.object ?? JSONObject()
        let state = FlagState(annotations: annotations, key: key.string)
        var object = JSONObject()
        object["key"] = .string(key.string)
        object["type"] = FlagEvaluation.type(of: self).map { .string($0.rawValue) } ?? .null
        object["enabled"] = .bool(annotations["off"] == nil && !(self.annotations.servesExperiment && isOff))
        object["description"] = annotations["description"] ?? ""
        object["tags"] = .array(self.annotations.tags.map { .string($0.string) })
        if let state {
            object["variations"] = state.annotations["variations"]
            object["rules"] = .array(state.rules.map { rule(of: $0) })
            object["otherwise"] = .string(state.otherwise)
        } else {
            object["variations"] = .array(uniqueVariations.map { describe($0) })
            object["rules"] = .array(rulesOfDatafile)
            object["otherwise"] = lastRule.flatMap { Self.delivered(by: $0) } ?? .null
        }
        object["defined_by"] =
            state != nil ? "flag" : self.annotations.servesExperiment ? "experiment" : "datafile"
        object["version"] = .integer(self.annotations.version ?? Int64(revision) ?? 0)
        object["sdk_key"] = .string(sdkKey)
        object["revision"] = .string(revision)
        return .object(object)
    }

    // MARK: Flags of the API

    private func rule(of rule: FlagState.Rule) -> JSONValue {
        var object = JSONObject()
        object["key"] = .string(rule.key)
        object["audience"] = rule.audience ?? .null
        if let delivery = rule.delivery {
            object["variation"] = .string(delivery.variation)
            object["traffic"] = .shortest(delivery.traffic)
        } else if let experiment = experiments.first(where: { $0.key == Identifier(rule.key) }) {
            object["experiment"] = describe(experiment)
        }
        return .object(object)
    }

    /// An experiment as `PUT /v1/flags/{key}` takes it.
    private func describe(_ experiment: Experiment) -> JSONValue {
        let relative = experiment.relativeWeights
        var weights = JSONObject()
        for variation in experiment.variations {
            weights[variation.key.string] = .shortest(relative[variation.id] ?? 0)
        }
        // What runs again when the flag is enabled counts as running.
        let running = annotations.object?["off"]?.object?["running"]?.array ?? []
        let isWaiting = running.contains(.string(experiment.id.string))
        let status = isWaiting ? ExperimentStatus.running.rawValue : experiment.status
        return [
            "id": .string(experiment.id.string), "weights": .object(weights), "traffic": .shortest(experiment.traffic),
            "status": .string(ExperimentStatus.name(of: status)), "enrollment": .string(experiment.enrollment.rawValue),
            "group": experiment.groupName.map { .string($0) } ?? .null,
        ]
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

    private var rulesOfDatafile: [JSONValue] {
        let experiments = experiments.map { experiment -> JSONValue in
            [
                "key": .string(experiment.key.string), "audience": Self.audience(of: experiment),
                "experiment": describe(experiment),
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
