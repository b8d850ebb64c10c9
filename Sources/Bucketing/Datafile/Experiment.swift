public import JSON

/// An experiment or a delivery rule.
public final class Experiment: Sendable {
    public let id: Identifier
    public let key: Identifier
    /// The campaign, as decision events name it; may be empty.
    public let layerID: Identifier
    public let status: String
    /// `ab`, `td`, `fr` and so on, where the datafile says.
    public let type: String?
    public let variations: [Variation]
    public let trafficAllocation: TrafficAllocation
    /// The whitelist: variation keys by user id.
    public let forcedVariations: [Identifier: Identifier]
    /// The group whose traffic is divided among its experiments; `nil` if this one shares with no other.
    public let exclusionGroup: Group?
    /// Whether a contextual bandit chooses the variation.
    public let isContextualBandit: Bool
    /// As the datafile has it: `audienceConditions`, or else `audienceIds`.
    public let audienceConditions: JSONValue

    /// Who takes part; `nil` for everyone.
    let audience: Condition?
    /// Whether users are bucketed at all.
    let isBucketed: Bool
    /// The variations of the last experiment or holdout with the same key, which is where the reference SDK looks
    /// for whitelisted and stored variations.
    let variationsOfKey: [Variation]

    init(
        _ definition: ExperimentDefinition, audience: Condition?, exclusionGroup: Group?,
        variationsOfKey: [Variation]
    ) {
        id = definition.id
        key = definition.key
        layerID = definition.layerID
        status = definition.status
        type = definition.type
        variations = definition.variations + definition.variationsForEveryoneElse
        trafficAllocation = definition.trafficAllocation
        forcedVariations = definition.forcedVariations
        isContextualBandit = definition.isContextualBandit
        audienceConditions = definition.audienceConditions
        self.audience = audience
        isBucketed = !definition.key.isBlank
        self.exclusionGroup = exclusionGroup
        self.variationsOfKey = variationsOfKey
    }

    public var isRunning: Bool { status == "Running" }

    /// Whether a global holdout may spare it.
    var isTargetedDelivery: Bool { type == "td" }

    public func variation(id: Identifier) -> Variation? {
        variations.variation(id: id)
    }

    public func variation(key: Identifier) -> Variation? {
        variations.variation(key: key)
    }
}
