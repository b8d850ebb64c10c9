import Bucketing
import JSON

/// One entry of the answer of `POST /v1/activate`.
struct Activation: Sendable {
    var experimentKey: Identifier = ""
    var flagKey: Identifier = ""
    var variationKey: Identifier = ""
    /// `experiment` or `feature`; empty if there is no such thing.
    var type = ""
    var variables: [VariableValue] = []
    var isEnabled = false
    var error: String?
    /// Where the variation comes from; `nil` if nothing was decided.
    var origin: Origin?

    init(unknownExperiment key: Identifier) {
        experimentKey = key
        error = "experimentKey not found"
    }

    init(unknownFlag key: Identifier) {
        flagKey = key
        error = "featureKey not found"
    }

    /// An experiment is enabled if it has a variation for the user.
    init(_ decision: ExperimentDecision) {
        type = "experiment"
        experimentKey = decision.experiment.key
        variationKey = decision.variation?.key ?? ""
        isEnabled = decision.variation != nil
        origin = decision.origin
    }

    /// Delivery rules are not named.
    init(_ decision: Decision) {
        type = "feature"
        flagKey = decision.flagKey
        if decision.ruleType != .rollout {
            experimentKey = decision.ruleKey ?? ""
            variationKey = decision.variation?.key ?? ""
        }
        variables = decision.variables
        isEnabled = decision.isEnabled
        origin = decision.origin
    }

    func append(for user: User, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("userId", user.id.string)
        writer.member("experimentKey", experimentKey.string)
        writer.member("featureKey", flagKey.string)
        writer.member("variationKey", variationKey.string)
        writer.member("type", type)
        writer.agentVariables(variables)
        writer.member("enabled", isEnabled)
        if let error { writer.member("error", error) }
        writer.endObject()
    }
}
