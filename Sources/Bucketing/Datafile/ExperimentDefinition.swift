import JSON

/// What one element of a datafile's `experiments` says, before it is connected with the rest.
struct ExperimentDefinition {
    let id: Identifier
    let key: Identifier
    let layerID: Identifier
    let status: String
    let type: String?
    let variations: [Variation]
    /// What users get whom a feature rollout leaves out.
    var variationsForEveryoneElse: [Variation] = []
    /// The first that the datafile lists, even if a later one has the same key.
    let firstVariation: Variation?
    var trafficAllocation: TrafficAllocation
    let forcedVariations: [Identifier: Identifier]
    var groupID: Identifier?
    var groupPolicy: String?
    let isContextualBandit: Bool
    let audienceConditions: JSONValue
}

extension DatafileReader {
    mutating func experiment(_ node: Node) -> ExperimentDefinition {
        let bandit = contextualBandit(of: node)
        let ownAllocation = trafficAllocation(of: node)
        let variations = variations(of: node)
        return ExperimentDefinition(
            id: id("id", of: node), key: id("key", of: node), layerID: id("layerId", of: node),
            status: string("status", of: node), type: optionalString("type", of: node),
            variations: variations.lastOfEachKey(), firstVariation: variations.first,
            trafficAllocation: bandit ?? ownAllocation,
            forcedVariations: texts("forcedVariations", of: node),
            groupID: optionalString("groupId", of: node).map { Identifier($0) },
            groupPolicy: optionalString("groupPolicy", of: node),
            isContextualBandit: bandit != nil, audienceConditions: audienceConditions(of: node)
        )
    }

    /// The traffic that a contextual bandit decides for, if there is one.
    private mutating func contextualBandit(of node: Node) -> TrafficAllocation? {
        guard let bandit = optionalObject("cmab", of: node), bandit.value.object?.isEmpty == false else { return nil }
        return TrafficAllocation(ranges: [
            TrafficAllocation.Range(entityID: "$", end: endOfRange("trafficAllocation", of: bandit))
        ])
    }

    mutating func trafficAllocation(of node: Node) -> TrafficAllocation {
        TrafficAllocation(ranges: objects("trafficAllocation", of: node).map { range in
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

    /// `audienceConditions` if present, else `audienceIds`, which must be there.
    mutating func audienceConditions(of node: Node) -> JSONValue {
        let ids = ids("audienceIds", of: node).map { JSONValue.string($0.string) }
        if let conditions = node.value.object?["audienceConditions"], !conditions.isNull { return conditions }
        return .array(ids)
    }
}
