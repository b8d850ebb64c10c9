public import JSON

/// A share of users who are kept out of experiments, so that the combined effect of the experiments can be measured.
///
/// A global holdout applies to all flags, a local one to the rules that it lists. A holdout that was defined over the
/// API also has a ``comparison`` of the users inside and outside of it.
public final class Holdout: Sendable {
    public let id: Identifier
    public let key: Identifier
    public let status: String
    public let variations: [Variation]
    public let trafficAllocation: TrafficAllocation
    /// The rules that a local holdout applies to; `nil` for a global holdout, which applies to all flags.
    public let includedRules: [Identifier]?
    /// Whether held-out users still get targeted deliveries.
    public let excludesTargetedDeliveries: Bool
    /// The datafile's `audienceConditions`, or else its `audienceIds`.
    public let audienceConditions: JSONValue

    /// Who may be held out; `nil` for everyone.
    let audience: Condition?
    /// Whether users are bucketed at all. The SDKs bucket nobody if the key is blank.
    let isBucketed: Bool

    /// An experiment with the users inside and outside of the holdout as two variations, for which results are
    /// computed. It has the id of the holdout, and no decision uses it. `nil` for a holdout that was not defined over
    /// the API.
    public let comparison: Experiment?
    /// The variation of the users who are not held out. It exists in ``comparison`` only, not in the datafile.
    let rest: Variation?

    init(_ model: HoldoutModel, audiences: [Identifier: Condition]) {
        id = model.id
        key = model.key
        status = model.status
        variations = model.variations
        trafficAllocation = model.trafficAllocation
        includedRules = model.includedRules
        excludesTargetedDeliveries = model.excludesTargetedDeliveries
        audienceConditions = model.audienceConditions
        audience = Condition.ofExperiment(model.audienceConditions, audiences: audiences)
        isBucketed = !model.key.isBlank
        rest = model.restID.map {
            Variation(id: $0, key: "rest", isFeatureEnabled: true, variableValues: [:], weight: nil)
        }
        comparison = rest.map { Holdout.comparison(of: model, with: $0) }
    }

    /// Returns an experiment in which the variation `rest` has all bucket values that the holdout leaves.
    private static func comparison(of model: HoldoutModel, with rest: Variation) -> Experiment {
        let remaining = TrafficAllocation.Range(entityID: rest.id, end: Bucketer.bucketCount)
        let experiment = ExperimentModel(
            id: model.id, key: model.key, layerID: "", status: model.status, type: nil,
            variations: model.variations + [rest], firstVariation: model.variations.first,
            trafficAllocation: TrafficAllocation(ranges: model.trafficAllocation.ranges + [remaining]),
            forcedVariations: [:], gate: nil, audienceConditions: model.audienceConditions,
            annotations: ExperimentAnnotations(nil))
        return Experiment(experiment, audience: nil, exclusionGroup: nil, variationsOfKey: [])
    }

    public var isRunning: Bool { status == "Running" }

    /// Whether the holdout was defined over the API.
    public var isOwn: Bool { rest != nil }
}
