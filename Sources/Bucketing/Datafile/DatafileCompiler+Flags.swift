import JSON

/// What one element of a datafile's `featureFlags` says, before it is connected with the rest.
struct FlagDefinition {
    let id: Identifier
    let key: Identifier
    let experimentIDs: [Identifier]
    let rolloutID: Identifier
    let variables: [Variable]
}

extension DatafileCompiler {
    mutating func readFlags() -> [FlagDefinition] {
        var flags = KeyedList<FlagDefinition>()
        for node in reader.objects("featureFlags", of: root, isOptional: true) {
            let flag = flag(node)
            flags.set(flag.key, flag)
        }
        flags.values.forEach { letEveryoneElseIntoFeatureRollouts(of: $0) }
        return flags.values
    }

    private mutating func flag(_ node: DatafileReader.Node) -> FlagDefinition {
        let experimentIDs = reader.ids("experimentIds", of: node)
        for (index, id) in experimentIDs.enumerated() where definitions[id] == nil {
            let place = node.pointer.appending("experimentIds").appending(index)
            reader.refuse(place, "no experiment has the id '\(id)'")
        }
        let rolloutID = reader.id("rolloutId", of: node)
        if !rolloutID.string.isEmpty, rollouts[rolloutID] == nil {
            reader.refuse(node.pointer.appending("rolloutId"), "no rollout has the id '\(rolloutID)'")
        }
        var variables = KeyedList<Variable>()
        for element in reader.objects("variables", of: node) {
            let variable = variable(element)
            variables.set(variable.key, variable)
        }
        return FlagDefinition(
            id: reader.id("id", of: node), key: reader.id("key", of: node), experimentIDs: experimentIDs,
            rolloutID: rolloutID, variables: variables.values
        )
    }

    private mutating func variable(_ node: DatafileReader.Node) -> Variable {
        let type = reader.string("type", of: node)
        let kind = Variable.Kind(type: type, subType: reader.optionalString("subType", of: node))
        return Variable(
            id: reader.id("id", of: node), key: reader.id("key", of: node),
            kind: kind, type: kind == .json ? "json" : type, defaultValue: reader.string("defaultValue", of: node)
        )
    }

    /// Users whom an experiment of the type feature rollout leaves out get the variation of the flag's last
    /// delivery rule, inside the experiment.
    private mutating func letEveryoneElseIntoFeatureRollouts(of flag: FlagDefinition) {
        guard let lastRule = rollouts[flag.rolloutID]?.last,
            let variation = definitions[lastRule]?.firstVariation
        else { return }
        for id in flag.experimentIDs where definitions[id]?.type == "fr" {
            definitions.update(id) { experiment in
                experiment.variationsForEveryoneElse.append(variation)
                // The traffic of a contextual bandit is not its own.
                guard !experiment.isContextualBandit else { return }
                experiment.trafficAllocation.ranges.append(
                    TrafficAllocation.Range(entityID: variation.id, end: Bucketer.bucketCount)
                )
            }
            texts[variation.id] = variation.variableValues
        }
    }
}
