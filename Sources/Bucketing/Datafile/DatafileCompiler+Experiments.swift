import JSON

extension DatafileCompiler {
    /// Collects the experiments, the delivery rules and the experiments of groups, in this order.
    mutating func readExperiments() {
        for node in reader.objects("experiments", of: root) {
            add(reader.experiment(node))
        }
        for node in reader.objects("rollouts", of: root, isOptional: true) {
            let rules = reader.objects("experiments", of: node).map { reader.experiment($0) }
            rules.forEach { add($0) }
            rollouts.set(reader.id("id", of: node), rules.map(\.id).uniqued())
        }
        for node in reader.objects("groups", of: root) {
            readGroup(node)
        }
        for definition in definitions.values {
            for variation in definition.variations {
                texts[variation.id] = variation.variableValues
            }
        }
    }

    private mutating func add(_ definition: ExperimentDefinition) {
        definitions.set(definition.id, definition)
    }

    private mutating func readGroup(_ node: DatafileReader.Node) {
        let group = Group(
            id: reader.id("id", of: node), policy: reader.string("policy", of: node),
            trafficAllocation: reader.trafficAllocation(of: node),
            experimentIDs: reader.objects("experiments", of: node).map { experiment in
                var definition = reader.experiment(experiment)
                definition.groupID = reader.id("id", of: node)
                definition.groupPolicy = reader.string("policy", of: node)
                add(definition)
                return definition.id
            }
        )
        groups.set(group.id, group)
    }

    mutating func readHoldouts() -> [Holdout] {
        var holdouts = reader.objects("holdouts", of: root, isOptional: true).map { node in
            Holdout(node, includedRules: nil, audiences: conditions, &reader)
        }
        for node in reader.objects("localHoldouts", of: root, isOptional: true) {
            // The reference leaves out a local holdout that does not say for which rules it is.
            guard let rules = reader.optionalIDs("includedRules", of: node) else { continue }
            holdouts.append(Holdout(node, includedRules: rules, audiences: conditions, &reader))
        }
        return holdouts
    }

    mutating func makeExperiments(holdouts: [Holdout]) -> KeyedList<Experiment> {
        var variationsByKey: [Identifier: [Variation]] = [:]
        for definition in definitions.values {
            variationsByKey[definition.key] = definition.variations
        }
        for definition in definitions.values {
            variationsByKey[definition.key, default: []] += definition.variationsForEveryoneElse
        }
        for holdout in holdouts {
            variationsByKey[holdout.key] = holdout.variations
        }
        var experiments = KeyedList<Experiment>()
        for definition in definitions.values {
            let experiment = Experiment(
                definition,
                audience: Condition.ofExperiment(definition.audienceConditions, audiences: conditions),
                exclusionGroup: exclusionGroup(of: definition),
                variationsOfKey: variationsByKey[definition.key] ?? []
            )
            experiments.set(definition.id, experiment)
        }
        return experiments
    }

    private mutating func exclusionGroup(of definition: ExperimentDefinition) -> Group? {
        guard Group.excludes(policy: definition.groupPolicy), let id = definition.groupID else { return nil }
        if groups[id] == nil {
            reader.refuse(["groups"], "no group has the id '\(id)', which the experiment '\(definition.key)' names")
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
    /// Each id once, at its first place.
    fileprivate func uniqued() -> [Identifier] {
        var seen: Set<Identifier> = []
        return filter { seen.insert($0).inserted }
    }
}
