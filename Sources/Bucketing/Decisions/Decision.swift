import JSON

/// The decision of a flag for a user.
public struct Decision: Sendable {
    /// The kind of rule that decided, named as in the decision events of SDKs.
    public enum RuleType: String, Sendable {
        /// An experiment.
        case featureTest = "feature-test"
        /// A delivery rule, or no rule at all.
        case rollout
        case holdout
    }

    public let flagKey: Identifier
    /// The experiment, delivery rule or holdout that decided. `nil` if none applied, or if the request forced the
    /// variation for the flag as a whole.
    public let ruleKey: Identifier?
    public let ruleType: RuleType
    public let variation: Variation?
    /// Whether the flag is on for the user, as the variation says; false without a variation.
    public let isEnabled: Bool
    /// In the order of the datafile; empty if the options exclude variables.
    public let variables: [VariableValue]
    /// Empty unless requested, except for errors.
    public package(set) var reasons: [String]
    public let source: DecisionSource
}

/// Where the variation of a decision comes from.
public enum DecisionSource: String, Sendable, CaseIterable {
    /// Chosen by the request: what SDKs call a forced decision.
    case requested = "forced"
    /// Set for the user by an admin, or for a test over the Agent's API.
    case override
    /// Listed in the datafile's forced variations.
    case whitelist
    /// Assigned earlier.
    case stored
    /// Bucketed by this decision. An experiment then assigns the variation to the user; a delivery rule assigns
    /// nothing.
    case bucketed
    /// The experiment is concluded, and everybody in its audience gets the winner.
    case concluded
    /// A holdout keeps the user out.
    case holdout
    /// The user has no variation.
    case none
}

/// The decision of one experiment for a user. A class, because it is large and passed on several times.
public final class ExperimentDecision: Sendable {
    public let experiment: Experiment
    public let variation: Variation?
    public let source: DecisionSource
    /// The holdout that keeps the user out, if ``source`` is ``DecisionSource/holdout``.
    public let holdout: Holdout?
    /// Empty unless requested.
    public let reasons: [String]
    /// The assignment to store; `nil` if there is nothing to store.
    public let newAssignment: NewAssignment?
    /// See ``DecisionResult/hasStaleAssignment``.
    public let hasStaleAssignment: Bool

    init(
        experiment: Experiment, variation: Variation?, source: DecisionSource, holdout: Holdout?, reasons: [String],
        newAssignment: NewAssignment?, hasStaleAssignment: Bool
    ) {
        self.experiment = experiment
        self.variation = variation
        self.source = source
        self.holdout = holdout
        self.reasons = reasons
        self.newAssignment = newAssignment
        self.hasStaleAssignment = hasStaleAssignment
    }

    /// Returns the decision with a further reason.
    package func adding(reason: String) -> ExperimentDecision {
        ExperimentDecision(
            experiment: experiment, variation: variation, source: source, holdout: holdout, reasons: reasons + [reason],
            newAssignment: newAssignment, hasStaleAssignment: hasStaleAssignment)
    }
}

extension ExperimentDecision {
    /// The JSON of the decision in responses of `/v1/assign`.
    package func encoded() -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("experiment_id", experiment.id.string)
        writer.member("experiment_key", experiment.key.string)
        writer.member("variation_id", variation?.id.string)
        writer.member("variation_key", variation?.key.string)
        writer.member("source", source.rawValue)
        writer.member("reasons", reasons)
        writer.endObject()
        return writer.finish()
    }
}

/// A decision event: the user was exposed to a variation.
public struct Impression: Sendable, Equatable {
    /// Empty if an experiment was activated without a flag.
    public var flagKey: Identifier
    /// Empty if no rule applied.
    public var ruleKey: Identifier
    /// `feature-test`, `rollout`, `holdout`, or `experiment` if an experiment was activated.
    public var ruleType: String
    /// Empty if no rule applied.
    public var experimentID: Identifier
    /// The layer id of the experiment, or its id if it has no layer.
    public var campaignID: Identifier
    /// Empty if there is no variation.
    public var variationID: Identifier
    /// Empty if there is no variation.
    public var variationKey: Identifier
    public var isEnabled: Bool
    public var source: DecisionSource
}

extension Impression {
    /// Creates the event for an experiment that was activated without a flag.
    public init(activating experiment: Experiment, variation: Variation, source: DecisionSource) {
        self.init(
            flagKey: "", rule: .experiment(experiment), ruleType: "experiment", variation: variation, isEnabled: true,
            source: source
        )
    }

    init(
        flagKey: Identifier, rule: Rule?, ruleType: String, variation: Variation?, isEnabled: Bool,
        source: DecisionSource
    ) {
        let experimentID = rule?.id ?? ""
        let layerID = rule?.layerID ?? ""
        self.init(
            flagKey: flagKey, ruleKey: rule?.key ?? "", ruleType: ruleType, experimentID: experimentID,
            campaignID: layerID.string.isEmpty ? experimentID : layerID,
            variationID: variation?.id ?? "", variationKey: variation?.key ?? "", isEnabled: isEnabled,
            source: source
        )
    }
}
