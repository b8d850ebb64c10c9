import JSON

extension DatafileCompiler {
    /// Reads the experiments, the delivery rules and the experiments of groups, in this order.
    mutating func readExperiments() {
        for node in reader.objects("experiments", of: root) {
            add(experiment(node))
        }
        for node in reader.objects("rollouts", of: root, isOptional: true) {
            let rules = reader.objects("experiments", of: node).map { experiment($0) }
            rules.forEach { add($0) }
            rollouts.set(reader.id("id", of: node), rules.map(\.id).uniqued())
        }
        for node in reader.objects("groups", of: root) {
            readGroup(node)
        }
        formerExperiments.end()
        changes?.add(experiments: newExperiments + formerExperiments.missing, of: elements.experiments)
        for experiment in parsedExperiments.values {
            for variation in experiment.variations {
                texts[variation.id] = variation.variableValues
            }
        }
    }

    private mutating func experiment(_ node: DatafileReader.Node) -> ParsedExperiment {
        let known = formerExperiments.parsed(of: node.value)
        let parsed = known ?? reader.experiment(node)
        if known == nil { newExperiments.append(parsed) }
        elements.experiments.append(DatafileElements.Element(source: node.value, parsed: parsed))
        return parsed
    }

    private mutating func add(_ experiment: ParsedExperiment) {
        parsedExperiments.set(experiment.id, experiment)
    }

    private mutating func readGroup(_ node: DatafileReader.Node) {
        let group = Group(
            id: reader.id("id", of: node), name: node.annotations?["name"]?.string,
            policy: reader.string("policy", of: node),
            trafficAllocation: reader.trafficAllocation(of: node),
            experimentIDs: reader.objects("experiments", of: node).map { element in
                var experiment = experiment(element)
                experiment.groupID = reader.id("id", of: node)
                experiment.groupPolicy = reader.string("policy", of: node)
                add(experiment)
                return experiment.id
            }
        )
        groups.set(group.id, group)
    }

    mutating func readHoldouts() -> [Holdout] {
        var holdouts = reader.objects("holdouts", of: root, isOptional: true).map { node in
            Holdout(node, includedRules: nil, audiences: conditions, &reader)
        }
        for node in reader.objects("localHoldouts", of: root, isOptional: true) {
            // The reference SDK skips a local holdout without rules.
            guard let rules = reader.optionalIDs("includedRules", of: node) else { continue }
            holdouts.append(Holdout(node, includedRules: rules, audiences: conditions, &reader))
        }
        return holdouts
    }

    mutating func makeExperiments(holdouts: [Holdout]) -> KeyedList<Experiment> {
        var variationsByKey: [Identifier: [Variation]] = [:]
        for experiment in parsedExperiments.values {
            variationsByKey[experiment.key] = experiment.variations
        }
        for experiment in parsedExperiments.values {
            variationsByKey[experiment.key, default: []] += experiment.variationsForEveryoneElse
        }
        for holdout in holdouts {
            variationsByKey[holdout.key] = holdout.variations
        }
        var experiments = KeyedList<Experiment>()
        for parsed in parsedExperiments.values {
            let experiment =
                changes?.unchanged(parsed)
                ?? Experiment(
                    parsed,
                    audience: Condition.ofExperiment(parsed.audienceConditions, audiences: conditions),
                    exclusionGroup: exclusionGroup(of: parsed),
                    variationsOfKey: variationsByKey[parsed.key] ?? []
                )
            experiments.set(parsed.id, experiment)
        }
        return experiments
    }

    private mutating func exclusionGroup(of experiment: ParsedExperiment) -> Group? {
        guard Group.excludes(policy: experiment.groupPolicy), let id = experiment.groupID else { return nil }
        if groups[id] == nil {
            reader.reject(["groups"], "no group has the id '\(id)', which the experiment '\(experiment.key)' names")
        }
        return groups[id]
    }

    func makeRollouts(_ experiments: KeyedList<Experiment>) -> KeyedList<Rollout> {
        var made = KeyedList<Rollout>()
        for (id, rules) in zip(rollouts.keys, rollouts.values) {
            made.set(id, Rollout(id: id, rules: rules.compactMap { experiments[$0] }))
        }
        return made
    }
}

extension [Identifier] {
    /// Returns each id once, at its first position.
    package func uniqued() -> [Identifier] {
        var seen: Set<Identifier> = []
        return filter { seen.insert($0).inserted }
    }
}

// MARK: - Parsing

/// An experiment or delivery rule of a datafile, before its audiences and group are looked up.
struct ParsedExperiment {
    let id: Identifier
    let key: Identifier
    let layerID: Identifier
    let status: String
    let type: String?
    let variations: [Variation]
    /// The variations for users outside the traffic of a feature rollout.
    var variationsForEveryoneElse: [Variation] = []
    /// The first one that the datafile lists, even if a later one has the same key.
    let firstVariation: Variation?
    var trafficAllocation: TrafficAllocation
    let forcedVariations: [Identifier: Identifier]
    var groupID: Identifier?
    var groupPolicy: String?
    /// Whom a contextual bandit admits; `nil` for any other experiment.
    let gate: TrafficAllocation?
    let audienceConditions: JSONValue
    let annotations: ExperimentAnnotations
}

extension DatafileReader {
    mutating func experiment(_ node: Node) -> ParsedExperiment {
        let gate = gate(of: node)
        let allocation = trafficAllocation(of: node)
        let all = variations(of: node)
        let variations = all.lastOfEachKey()
        return ParsedExperiment(
            id: id("id", of: node), key: id("key", of: node), layerID: id("layerId", of: node),
            status: string("status", of: node), type: optionalString("type", of: node),
            variations: variations, firstVariation: all.first,
            trafficAllocation: gate == nil
                ? allocation : .dividing(variations.map(\.id), variations.compactMap(\.weight), like: allocation),
            forcedVariations: texts("forcedVariations", of: node),
            groupID: optionalString("groupId", of: node).map { Identifier($0) },
            groupPolicy: optionalString("groupPolicy", of: node),
            gate: gate, audienceConditions: audienceConditions(of: node),
            annotations: ExperimentAnnotations(node.annotations)
        )
    }

    /// Reads the traffic that a contextual bandit admits, if the experiment has one.
    private mutating func gate(of node: Node) -> TrafficAllocation? {
        guard let bandit = optionalObject("cmab", of: node), bandit.value.object?.isEmpty == false else { return nil }
        return TrafficAllocation(ranges: [
            TrafficAllocation.Range(entityID: "$", end: endOfRange("trafficAllocation", of: bandit))
        ])
    }

    mutating func trafficAllocation(of node: Node) -> TrafficAllocation {
        TrafficAllocation(
            ranges: objects("trafficAllocation", of: node).map { range in
                TrafficAllocation.Range(entityID: id("entityId", of: range), end: endOfRange("endOfRange", of: range))
            })
    }

    mutating func variations(of node: Node) -> [Variation] {
        objects("variations", of: node).map { variation($0) }
    }

    private mutating func variation(_ node: Node) -> Variation {
        var values: [Identifier: String] = [:]
        for usage in objects("variables", of: node, isOptional: true) {
            values[id("id", of: usage)] = string("value", of: usage)
        }
        return Variation(
            id: id("id", of: node), key: id("key", of: node),
            isFeatureEnabled: optionalBool("featureEnabled", of: node) ?? false, variableValues: values,
            weight: node.value.object?["weight"]?.double
        )
    }

    /// Reads `audienceConditions` if present, else `audienceIds`. Both are checked, as far as they are there; the Python SDK
    /// alone requires the latter in any case.
    mutating func audienceConditions(of node: Node) -> JSONValue {
        if let conditions = node.value.object?["audienceConditions"], !conditions.isNull {
            _ = optionalIDs("audienceIds", of: node)
            return conditions
        }
        return .array(ids("audienceIds", of: node).map { .string($0.string) })
    }
}
