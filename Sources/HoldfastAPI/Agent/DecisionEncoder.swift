import Bucketing
import JSON

/// Writes decisions as the Agent does.
struct DecisionEncoder {
    var writer = JSONWriter()
    private let datafile: Datafile
    /// The same in each decision.
    private let userContext: [UInt8]

    init(_ user: User, _ datafile: Datafile) {
        self.datafile = datafile
        var context = JSONWriter()
        context.beginObject()
        context.member("userId", user.id.string)
        context.key("attributes")
        context.agentObject(user.attributes)
        context.endObject()
        userContext = context.finish()
    }

    mutating func append(_ decision: Decision) {
        append(
            flagKey: decision.flagKey, ruleKey: decision.ruleKey, variationKey: decision.variation?.key,
            isEnabled: decision.isEnabled, variables: decision.variables, reasons: decision.reasons)
    }

    mutating func append(unknownFlag key: Identifier) {
        append(
            flagKey: key, ruleKey: nil, variationKey: nil, isEnabled: false, variables: [],
            reasons: [DecisionService.reasonForUnknownFlag(key)])
    }

    private mutating func append(
        flagKey: Identifier, ruleKey: Identifier?, variationKey: Identifier?, isEnabled: Bool,
        variables: [VariableValue], reasons: [String]
    ) {
        writer.beginObject()
        writer.member("variationKey", variationKey?.string ?? "")
        writer.member("enabled", isEnabled)
        writer.member("ruleKey", ruleKey?.string ?? "")
        writer.member("flagKey", flagKey.string)
        writer.key("userContext")
        writer.raw(userContext)
        writer.member("reasons", reasons)
        writer.agentVariables(variables)
        writer.member("isEveryoneElseVariation", isForEveryoneElse(flagKey, ruleKey))
        writer.endObject()
    }

    /// The last delivery rule has a key that is its id and says that it is the default.
    private func isForEveryoneElse(_ flagKey: Identifier, _ ruleKey: Identifier?) -> Bool {
        guard let ruleKey, ruleKey.string.hasPrefix("default-"),
            let rule = datafile.flag(key: flagKey)?.rollout?.rules.first(where: { $0.key == ruleKey })
        else { return false }
        return rule.id == rule.key
    }
}
