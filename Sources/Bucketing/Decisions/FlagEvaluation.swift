public import JSON

/// Why a user has the value of a flag.
public enum EvaluationReason: String, Sendable, CaseIterable {
    /// A targeted delivery chose the variation by its audience.
    case targeted
    /// An experiment enrolled the user with this evaluation.
    case experiment
    /// The user was enrolled in the experiment by an earlier evaluation.
    case sticky
    /// An admin set the variation for the user.
    case override
    /// The datafile's forced variations list the user.
    case whitelist
    /// The request forced the variation.
    case requested = "forced"
    /// A holdout keeps the user out of experiments.
    case holdout
    /// No rule applied: the variation for everyone else, or no variation and the flag's default.
    case `default`
    /// The flag is off for everybody: it has no delivery, and none of its experiments runs.
    case disabled
}

/// A ``Decision`` in terms of a flag's value, as the APIs of this server and OpenFeature report it: the value, its type
/// and the reason.
public struct FlagEvaluation: Sendable {
    public let flagKey: Identifier
    /// The type of ``value``; `nil` for a flag of a datafile that has several variables, or one not named `value`.
    public let type: Variable.Kind?
    /// The value of the variable `value`. For a flag without variables, whether it is on; for other flags, an object of
    /// the variables. `nil` if a flag serves an experiment and the user has no variation.
    public let value: JSONValue?
    /// In the order of the datafile.
    public let variables: [VariableValue]
    public let variationKey: Identifier?
    public let variationID: Identifier?
    public let isEnabled: Bool
    /// Whether everybody has this value: the flag has no experiment, each delivery rule gives one variation to all
    /// users, and nobody is held out.
    public let isStatic: Bool
    public let reason: EvaluationReason
    /// Where the variation comes from.
    public let source: DecisionSource
    /// The experiment, delivery rule or holdout that decided.
    public let ruleKey: Identifier?
    /// The id of the experiment that decided, which exposures refer to; `nil` if none did.
    public let experimentID: Identifier?
    /// The revision of the datafile in which the flag changed last. For a flag that was not defined over the API, the
    /// revision of this datafile; 0 if that is no number.
    public let flagVersion: Int64
    public let tags: [Identifier]
    /// Empty unless the decision was made with reasons.
    public let reasons: [String]

    /// The key of the variable that holds the value of a flag that was defined over the API.
    public static let variable: Identifier = "value"

    /// - Parameters:
    ///   - decision: made with its variables.
    ///   - datafile: the datafile that the decision was made with.
    public init(_ decision: Decision, _ datafile: Datafile) {
        let flag = datafile.flag(key: decision.flagKey)
        flagKey = decision.flagKey
        variables = decision.variables
        variationKey = decision.variation?.key
        variationID = decision.variation?.id
        isEnabled = decision.isEnabled
        isStatic = flag?.isStatic == true && datafile.holdouts.isEmpty
        reason = EvaluationReason(decision, flag)
        source = decision.source
        ruleKey = decision.ruleKey
        let experiment = decision.ruleType == .featureTest ? decision.ruleKey.flatMap(datafile.experiment(key:)) : nil
        experimentID = experiment?.id
        flagVersion = flag?.annotations.version ?? Int64(datafile.revision) ?? 0
        tags = flag?.annotations.tags ?? []
        reasons = decision.reasons
        type = flag.flatMap(Self.type)
        value = flag.flatMap { Self.value(decision, $0) }
    }

    /// The type of a flag's value; `nil` if it is an object of several variables.
    public static func type(of flag: Flag) -> Variable.Kind? {
        guard let variable = flag.variables.first else { return .boolean }
        return flag.variables.count == 1 && variable.key == Self.variable ? variable.kind : nil
    }

    private static func value(_ decision: Decision, _ flag: Flag) -> JSONValue? {
        if flag.annotations.servesExperiment, decision.variation == nil { return nil }
        guard !flag.variables.isEmpty else { return .bool(decision.isEnabled) }
        if type(of: flag) != nil { return decision.variables.first?.value }
        var object = JSONObject()
        for variable in decision.variables { object[variable.key.string] = variable.value }
        return .object(object)
    }
}

extension EvaluationReason {
    /// - Parameter flag: the flag of the decision.
    init(_ decision: Decision, _ flag: Flag?) {
        self =
            switch decision.source {
            case .requested: .requested
            case .override: .override
            case .whitelist: .whitelist
            case .stored: .sticky
            case .holdout: .holdout
            case .bucketed where decision.ruleType == .featureTest: .experiment
            case .bucketed, .concluded: flag?.isForEveryoneElse(decision.ruleKey) == true ? .default : .targeted
            case .none: flag?.isOff == true ? .disabled : .default
            }
    }
}

extension Flag {
    /// Whether a rule is the last delivery rule, and for everybody.
    fileprivate func isForEveryoneElse(_ ruleKey: Identifier?) -> Bool {
        guard let last = rollout?.rules.last else { return false }
        return last.key == ruleKey && last.isForEverybody
    }

    /// Whether the flag has no experiment, and each delivery rule has no audience and gives all traffic to one
    /// variation.
    fileprivate var isStatic: Bool {
        experiments.isEmpty
            && (rollout?.rules ?? []).allSatisfy { $0.isForEverybody && $0.trafficAllocation.entityOfAll != nil }
    }

    /// Whether no user can get a variation of the flag: it has no delivery rule, and none of its experiments runs.
    public var isOff: Bool {
        (rollout?.rules ?? []).isEmpty && !experiments.contains(where: \.isRunning)
    }
}

extension FlagEvaluation {
    /// Writes the JSON of the evaluation in responses of `/v1/evaluations`.
    package func append(to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("flag_key", flagKey.string)
        writer.member("type", type?.rawValue)
        writer.key("value")
        writer.value(value ?? .null)
        writer.member("variation_key", variationKey?.string)
        writer.member("variation_id", variationID?.string)
        writer.member("experiment_id", experimentID?.string)
        writer.member("enabled", isEnabled)
        writer.key("variables")
        writer.beginObject()
        for variable in variables {
            writer.key(text: variable.key.string)
            writer.value(variable.value)
        }
        writer.endObject()
        writer.member("rule_key", ruleKey?.string)
        writer.member("reason", reason.rawValue)
        writer.member("source", source.rawValue)
        writer.member("flag_version", flagVersion)
        writer.member("tags", tags.map(\.string))
        if !reasons.isEmpty { writer.member("reasons", reasons) }
        writer.endObject()
    }
}
