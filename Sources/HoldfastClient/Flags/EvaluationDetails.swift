/// The evaluation of a flag for a user.
public struct EvaluationDetails: Sendable, Hashable {
    /// Identifies the evaluation: key and version of the flag and id of the user, separated by colons.
    public let id: String
    public let flagKey: String
    /// Revision of the datafile with the flag's last change. For a flag that an uploaded datafile brought, the revision
    /// of that datafile if it is an integer, else 0.
    public let flagVersion: Int
    public let userID: String
    /// Id of the variation. This and the other members of the variation are `nil` if no rule applied.
    public let variationID: String?
    /// Name of the variation.
    public let variationKey: String?
    /// Value of the variation: the flag's variable `value` if it has one, else the variation's key. If the user has no
    /// variation, because the flag is off or no rule applies, this is the flag's value for everybody else. It is `nil`
    /// if the flag has no such value, which is the case for a flag that serves an experiment.
    public let variationValue: HoldfastValue?
    /// The experiment that chose the variation; `nil` for targeted rollouts, holdouts and if no rule applied.
    public let experimentID: String?
    /// Whether the variation turns the flag on.
    public let isEnabled: Bool
    /// Values of the flag's variables.
    public let variables: [String: HoldfastValue]
    /// Key of the experiment, targeted rollout or holdout that applied.
    public let ruleKey: String?
    /// Why the user has the variation.
    public let reason: VariationReason
    /// The steps of the decision with ``HoldfastConfiguration/includesReasons``; otherwise only problems.
    public let messages: [String]
}

/// Why a flag has its value.
public enum VariationReason: String, Sendable, Hashable, CaseIterable, Codable {
    /// A decision forced for a test.
    case forced
    /// An administrator's override.
    case override
    /// The experiment's list of users.
    case whitelist
    /// The variation that the user had already.
    case stored
    /// The experiment gave the user a variation now.
    case bucketed
    /// The user is held out of experiments.
    case holdout
    /// A targeted rollout. The rollout for everybody else counts as one, too.
    case rollout
    /// The flag is turned off for everybody: the user has no variation.
    case disabled
    /// No rule applied: the user has no variation.
    case noRule = "no_rule"
    /// ``HoldfastConfiguration/bootstrap`` has the value, because the flags have not been fetched yet.
    case bootstrap
    /// ``HoldfastClient/setOverride(_:flagKey:)`` has given the value on this device.
    case localOverride = "local_override"
    /// A reason unknown to this version of the library.
    case unknown

    // Reasons for a default value, which occur only in counts.

    /// The flags have not been fetched yet.
    case notFetched = "not_fetched"
    /// There is no such flag.
    case flagNotFound = "flag_not_found"
    /// The value has another type than the requested one.
    case wrongType = "wrong_type"
}

extension VariationReason {
    /// Reads the reason of a response.
    ///
    /// - Parameters:
    ///   - reason: the server's reason; `nil` in a response of an earlier release.
    ///   - source: the source of the variation, which counts if the reason is absent or unknown.
    ///   - hasVariation: tells a targeted rollout from no rule, which have the same source.
    init(_ reason: String?, source: String, hasVariation: Bool) {
        switch reason {
        case "targeted": self = .rollout
        case "default": self = hasVariation ? .rollout : .noRule
        case "experiment": self = .bucketed
        case "sticky": self = .stored
        case "forced", "override", "whitelist", "holdout", "disabled", "bootstrap", "local_override":
            self = reason.flatMap(Self.init) ?? .unknown
        default: self.init(source: source, hasVariation: hasVariation)
        }
    }

    /// Reads the source of a response without a known reason.
    private init(source: String, hasVariation: Bool) {
        switch source {
        case "none" where hasVariation: self = .rollout
        case "none": self = .noRule
        case "forced", "override", "whitelist", "stored", "bucketed", "holdout":
            self = Self(rawValue: source) ?? .unknown
        default: self = .unknown
        }
    }
}
