public struct DecideOptions: OptionSet, Sendable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// No decision event.
    public static let disableDecisionEvent = DecideOptions(rawValue: 1 << 0)
    /// Only flags that are on; a decision for a single flag pays no attention to it.
    public static let enabledFlagsOnly = DecideOptions(rawValue: 1 << 1)
    /// Stored assignments are neither used nor made.
    public static let ignoreUserProfileService = DecideOptions(rawValue: 1 << 2)
    public static let includeReasons = DecideOptions(rawValue: 1 << 3)
    /// The reasons of Holdfast's own API, which tell more than those of the Agent: also the outcome of bucketing, and
    /// which attributes an audience lacks.
    public static let includeAllReasons: DecideOptions = [.includeReasons, DecideOptions(rawValue: 1 << 5)]
    public static let excludeVariables = DecideOptions(rawValue: 1 << 4)

    /// - Parameter name: as the SDKs and the Agent write it, such as `INCLUDE_REASONS`; `nil` for an unknown one.
    public init?(name: String) {
        switch name {
        case "DISABLE_DECISION_EVENT": self = .disableDecisionEvent
        case "ENABLED_FLAGS_ONLY": self = .enabledFlagsOnly
        case "IGNORE_USER_PROFILE_SERVICE": self = .ignoreUserProfileService
        case "INCLUDE_REASONS": self = .includeReasons
        case "EXCLUDE_VARIABLES": self = .excludeVariables
        default: return nil
        }
    }
}
