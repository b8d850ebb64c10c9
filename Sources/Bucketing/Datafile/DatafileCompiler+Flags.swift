import JSON

/// An element of a datafile's `featureFlags`, before its experiments and rollout are looked up.
struct ParsedFlag {
    let id: Identifier
    let key: Identifier
    let experimentIDs: [Identifier]
    let rolloutID: Identifier
    let variables: [Variable]
    let annotations: FlagAnnotations
}

extension DatafileCompiler {
    mutating func readFlags() -> [ParsedFlag] {
        var flags = KeyedList<ParsedFlag>()
        for node in reader.objects("featureFlags", of: root, isOptional: true) {
            let flag = flag(node)
            flags.set(flag.key, flag)
        }
        flags.values.forEach { addEveryoneElseToFeatureRollouts(of: $0) }
        return flags.values
    }

    private mutating func flag(_ node: DatafileReader.Node) -> ParsedFlag {
        let experimentIDs = reader.ids("experimentIds", of: node)
        for (index, id) in experimentIDs.enumerated() where parsedExperiments[id] == nil {
            let pointer = node.pointer.appending("experimentIds").appending(index)
            reader.reject(pointer, "no experiment has the id '\(id)'")
        }
        let rolloutID = reader.id("rolloutId", of: node)
        if !rolloutID.string.isEmpty, rollouts[rolloutID] == nil {
            reader.reject(node.pointer.appending("rolloutId"), "no rollout has the id '\(rolloutID)'")
        }
        var variables = KeyedList<Variable>()
        for element in reader.objects("variables", of: node) {
            let variable = variable(element)
            variables.set(variable.key, variable)
        }
        return ParsedFlag(
            id: reader.id("id", of: node), key: reader.id("key", of: node), experimentIDs: experimentIDs,
            rolloutID: rolloutID, variables: variables.values,
            annotations: FlagAnnotations(node.annotations)
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

    /// Users outside the traffic of an experiment of the type feature rollout get the variation of the flag's last
    /// delivery rule, within the experiment.
    private mutating func addEveryoneElseToFeatureRollouts(of flag: ParsedFlag) {
        guard let lastRule = rollouts[flag.rolloutID]?.last,
            let variation = parsedExperiments[lastRule]?.firstVariation
        else { return }
        for id in flag.experimentIDs where parsedExperiments[id]?.type == "fr" {
            parsedExperiments.update(id) { experiment in
                experiment.variationsForEveryoneElse.append(variation)
                // A contextual bandit decides its traffic itself.
                guard !experiment.isContextualBandit else { return }
                experiment.trafficAllocation.ranges.append(
                    TrafficAllocation.Range(entityID: variation.id, end: Bucketer.bucketCount)
                )
            }
            texts[variation.id] = variation.variableValues
        }
    }
}
