import JSON

// Reads the elements of a datafile: experiments, holdouts, flags and their parts. Each method reads one element with
// all its members. `DatafileReader` calls them for each element of the datafile, and `DatafileEdit` for each element
// that an edit has changed.

// MARK: - Experiments and holdouts

extension MemberReader {
    mutating func experiment(_ node: Node) -> ExperimentModel {
        let gate = gate(of: node)
        var allocation = trafficAllocation(of: node)
        let all = variations(of: node)
        let variations = all.lastOfEachKey()
        if gate != nil {
            // A contextual bandit: the gate decides who is admitted, and the variations divide all admitted users.
            allocation = .dividing(variations.map(\.id), variations.compactMap(\.weight), like: allocation)
        }
        return ExperimentModel(
            id: id("id", of: node), key: id("key", of: node), layerID: id("layerId", of: node),
            status: string("status", of: node), type: optionalString("type", of: node),
            variations: variations, firstVariation: all.first,
            trafficAllocation: allocation,
            forcedVariations: strings("forcedVariations", of: node),
            groupID: optionalString("groupId", of: node).map { Identifier($0) },
            groupPolicy: optionalString("groupPolicy", of: node),
            gate: gate, audienceConditions: audienceConditions(of: node),
            annotations: ExperimentAnnotations(node.annotations)
        )
    }

    /// Reads the bucket values that a contextual bandit admits (`"cmab": {"trafficAllocation": 5000}`), if the
    /// experiment is one.
    private mutating func gate(of node: Node) -> TrafficAllocation? {
        guard let bandit = optionalObject("cmab", of: node), bandit.value.object?.isEmpty == false else { return nil }
        // Any id that is not empty: it stands for "admitted".
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

    /// Reads `audienceConditions` if present, else `audienceIds`. With `audienceConditions` present, `audienceIds` may
    /// be absent, but not of the wrong type. (Of the SDKs, only the Python SDK requires `audienceIds` in any case.)
    mutating func audienceConditions(of node: Node) -> JSONValue {
        if let conditions = node.value.object?["audienceConditions"], !conditions.isNull {
            _ = optionalIDs("audienceIds", of: node)
            return conditions
        }
        return .array(ids("audienceIds", of: node).map { .string($0.string) })
    }

    /// - Parameter includedRules: `nil` for a global holdout.
    mutating func holdout(_ node: Node, includedRules: [Identifier]?) -> HoldoutModel {
        HoldoutModel(
            id: id("id", of: node), key: id("key", of: node), status: string("status", of: node),
            variations: variations(of: node), trafficAllocation: trafficAllocation(of: node),
            includedRules: includedRules,
            excludesTargetedDeliveries: optionalBool("excludeTargetedDeliveries", of: node) ?? false,
            audienceConditions: audienceConditions(of: node),
            restID: node.annotations?["rest"]?.string.map { Identifier($0) })
    }
}

// MARK: - Flags

extension MemberReader {
    /// Reads a flag. If several variables have the same key, the last one counts.
    mutating func flag(
        _ node: Node, hasExperiment: (Identifier) -> Bool, hasRollout: (Identifier) -> Bool
    ) -> FlagModel {
        let experimentIDs = ids("experimentIds", of: node)
        checkExperiments(experimentIDs, of: node, hasExperiment)
        let rolloutID = id("rolloutId", of: node)
        checkRollout(rolloutID, of: node, hasRollout)
        var variables = KeyedList<Variable>()
        for element in objects("variables", of: node) {
            let variable = variable(element)
            variables.set(variable.key, variable)
        }
        return FlagModel(
            id: id("id", of: node), key: id("key", of: node), experimentIDs: experimentIDs, rolloutID: rolloutID,
            variables: variables.values, annotations: FlagAnnotations(node.annotations))
    }

    /// Records a problem for each of a flag's experiments that does not exist.
    mutating func checkExperiments(_ ids: [Identifier], of node: Node, _ exists: (Identifier) -> Bool) {
        for (index, id) in ids.enumerated() where !exists(id) {
            reject(node.pointer.appending("experimentIds").appending(index), "no experiment has the id '\(id)'")
        }
    }

    /// Records a problem if a flag's rollout does not exist. An empty id means that the flag has none.
    mutating func checkRollout(_ id: Identifier, of node: Node, _ exists: (Identifier) -> Bool) {
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
