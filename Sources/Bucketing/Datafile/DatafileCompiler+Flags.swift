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
            let flag = knownFlag(node) ?? newFlag(node)
            elements.flags.append(DatafileElements.Element(source: node.value, parsed: flag))
            flags.set(flag.key, flag)
        }
        formerFlags.end()
        changes?.add(flags: newFlags + formerFlags.missing)
        flags.values.forEach { addEveryoneElseToFeatureRollouts(of: $0) }
        return flags.values
    }

    /// Returns a flag that the former datafile has, too. What it refers to may be gone.
    private mutating func knownFlag(_ node: DatafileReader.Node) -> ParsedFlag? {
        guard let flag = formerFlags.parsed(of: node.value) else { return nil }
        let (experiments, rollouts) = (parsedExperiments, rollouts)
        reader.checkExperiments(flag.experimentIDs, of: node) { experiments[$0] != nil }
        reader.checkRollout(flag.rolloutID, of: node) { rollouts[$0] != nil }
        return flag
    }

    private mutating func newFlag(_ node: DatafileReader.Node) -> ParsedFlag {
        let (experiments, rollouts) = (parsedExperiments, rollouts)
        let flag = reader.flag(
            node, hasExperiment: { experiments[$0] != nil }, hasRollout: { rollouts[$0] != nil })
        newFlags.append(flag)
        return flag
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
                guard experiment.gate == nil else { return }
                experiment.trafficAllocation.ranges.append(
                    TrafficAllocation.Range(entityID: variation.id, end: Bucketer.bucketCount)
                )
            }
            texts[variation.id] = variation.variableValues
        }
    }
}

extension DatafileReader {
    mutating func flag(
        _ node: Node, hasExperiment: (Identifier) -> Bool, hasRollout: (Identifier) -> Bool
    ) -> ParsedFlag {
        let experimentIDs = ids("experimentIds", of: node)
        checkExperiments(experimentIDs, of: node, hasExperiment)
        let rolloutID = id("rolloutId", of: node)
        checkRollout(rolloutID, of: node, hasRollout)
        var variables = KeyedList<Variable>()
        for element in objects("variables", of: node) {
            let variable = variable(element)
            variables.set(variable.key, variable)
        }
        return ParsedFlag(
            id: id("id", of: node), key: id("key", of: node), experimentIDs: experimentIDs, rolloutID: rolloutID,
            variables: variables.values, annotations: FlagAnnotations(node.annotations))
    }

    fileprivate mutating func checkExperiments(_ ids: [Identifier], of node: Node, _ exists: (Identifier) -> Bool) {
        for (index, id) in ids.enumerated() where !exists(id) {
            reject(node.pointer.appending("experimentIds").appending(index), "no experiment has the id '\(id)'")
        }
    }

    fileprivate mutating func checkRollout(_ id: Identifier, of node: Node, _ exists: (Identifier) -> Bool) {
        if !id.string.isEmpty, !exists(id) {
            reject(node.pointer.appending("rolloutId"), "no rollout has the id '\(id)'")
        }
    }

    private mutating func variable(_ node: Node) -> Variable {
        let type = string("type", of: node)
        let kind = Variable.Kind(type: type, subType: optionalString("subType", of: node))
        return Variable(
            id: id("id", of: node), key: id("key", of: node), kind: kind, type: kind == .json ? "json" : type,
            defaultValue: string("defaultValue", of: node))
    }
}
