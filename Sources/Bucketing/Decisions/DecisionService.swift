/// Decides flags and experiments for users, like `decide` and `get_variation` of Optimizely's Python SDK.
///
/// Performs no I/O: the caller passes what is stored about the user (``StoredAssignments``), and stores the new
/// assignments of the result. Each call is one ``DecisionRun``, which has the rules of decisions.
public struct DecisionService: Sendable {
    public let datafile: Datafile

    public init(datafile: Datafile) {
        self.datafile = datafile
    }

    /// Decides one flag.
    ///
    /// - Returns: `nil` if there is no such flag; see ``reasonForUnknownFlag(_:)``.
    public func decide(
        _ flagKey: Identifier, for user: User, stored: (any StoredAssignments)? = nil, options: DecideOptions = []
    ) -> DecisionResult<Decision>? {
        guard let flag = datafile.flag(key: flagKey) else { return nil }
        let run = DecisionRun(datafile: datafile, user: user, stored: stored, options: options)
        let decision = run.decision(on: flag)
        return run.result(decision)
    }

    /// Decides several flags. Unknown flags are left out.
    public func decide(
        _ flagKeys: [Identifier], for user: User, stored: (any StoredAssignments)? = nil, options: DecideOptions = []
    ) -> DecisionResult<[Decision]> {
        decisions(on: flagKeys.compactMap(datafile.flag), user, stored, options)
    }

    /// Decides all flags, in the order of the datafile.
    public func decideAll(
        for user: User, stored: (any StoredAssignments)? = nil, options: DecideOptions = []
    ) -> DecisionResult<[Decision]> {
        decisions(on: datafile.flags, user, stored, options)
    }

    private func decisions(
        on flags: [Flag], _ user: User, _ stored: (any StoredAssignments)?, _ options: DecideOptions
    ) -> DecisionResult<[Decision]> {
        let run = DecisionRun(datafile: datafile, user: user, stored: stored, options: options)
        var decisions: [Decision] = []
        decisions.reserveCapacity(flags.count)
        for flag in flags {
            let decision = run.decision(on: flag)
            if decision.isEnabled || !options.contains(.enabledFlagsOnly) {
                decisions.append(decision)
            }
        }
        return run.result(decisions)
    }

    /// Decides one experiment independently of flags. Ignores holdouts, like Optimizely's Python SDK.
    public func variation(
        of experiment: Experiment, for user: User, stored: (any StoredAssignments)? = nil,
        options: DecideOptions = []
    ) -> ExperimentDecision {
        experimentRun(user, stored, options).decision(on: experiment)
    }

    /// Decides one experiment independently of flags, unless a holdout keeps the user out.
    public func assign(
        _ experiment: Experiment, for user: User, stored: (any StoredAssignments)? = nil,
        options: DecideOptions = []
    ) -> ExperimentDecision {
        experimentRun(user, stored, options).decisionUnlessHeldOut(on: experiment)
    }

    /// Decides one experiment without checking audience, traffic and holdouts. This is for contextual bandits: an SDK
    /// checks all three itself, and then requests a prediction.
    public func predict(
        _ experiment: Experiment, for user: User, stored: (any StoredAssignments)? = nil, options: DecideOptions = []
    ) -> ExperimentDecision {
        let run = experimentRun(user, stored, options)
        run.isAdmitted = true
        return run.decision(on: experiment)
    }

    /// Decides one experiment like ``assign(_:for:stored:options:)``, and records the steps of the decision.
    ///
    /// - Parameter showsValues: whether the steps show the values of the user's attributes.
    public func explain(
        _ experiment: Experiment, for user: User, stored: any StoredAssignments, showingValues showsValues: Bool
    ) -> (decision: ExperimentDecision, steps: [DecisionStep]) {
        let run = experimentRun(user, stored, .includeReasons)
        run.trace = DecisionTrace(showsValues: showsValues)
        let decision = run.decisionUnlessHeldOut(on: experiment)
        return (decision, run.trace?.steps ?? [])
    }

    /// Returns the variation that a user already has in an experiment: forced for a test, set by an override,
    /// whitelisted or stored. Does not check the status, the audience and the traffic of the experiment.
    ///
    /// - Returns: `nil` if the user has none.
    public func heldVariation(
        of experiment: Experiment, for userID: Identifier, stored: any StoredAssignments
    ) -> (variation: Variation, source: DecisionSource)? {
        let run = experimentRun(User(id: userID), stored, [])
        guard case .held(let outcome) = run.heldVariation(of: experiment), let variation = outcome.variation else {
            return nil
        }
        return (variation, outcome.source)
    }

    /// Returns the variation that a user without an assignment would get if the user were enrolled now. Only stored
    /// data is known here. If the result of the audience depends on attributes that only requests contain, the user
    /// counts as admitted.
    ///
    /// - Parameter stored: only its attributes are used.
    /// - Returns: `nil` if the experiment is not running, or cannot enroll the user.
    public func possibleEnrollment(
        of experiment: Experiment, for userID: Identifier, stored: any StoredAssignments
    ) -> Variation? {
        guard experiment.isRunning else { return nil }
        var user = User(id: userID)
        user.hasUnknownAttributes = true
        let run = experimentRun(user, stored, [])
        // Bucketing is cheaper than the audience, so it comes first.
        guard let variation = run.bucket(into: experiment) else { return nil }
        return run.excludes(experiment.audience) ? nil : variation
    }

    /// Returns the variation at the user's bucket value, without checking the audience.
    ///
    /// - Returns: `nil` if the traffic leaves the user out.
    public func bucketedVariation(of experiment: Experiment, for userID: Identifier) -> Variation? {
        experimentRun(User(id: userID), nil, []).bucket(into: experiment)
    }

    /// Creates a run for one experiment, whose reasons are more detailed than those of a flag.
    private func experimentRun(
        _ user: User, _ stored: (any StoredAssignments)?, _ options: DecideOptions
    ) -> DecisionRun {
        DecisionRun(
            datafile: datafile, user: user, stored: stored, options: options,
            detail: options.contains(.includeReasons) ? .full : Reasons.Detail.none
        )
    }

    /// Returns the reason that SDKs and the Agent give for a flag that does not exist.
    public static func reasonForUnknownFlag(_ key: Identifier) -> String {
        "No flag was found for key \"\(key)\"."
    }
}

/// Options of a decision, named like those of the SDKs.
public struct DecideOptions: OptionSet, Sendable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// Sends no decision event.
    public static let disableDecisionEvent = DecideOptions(rawValue: 1 << 0)
    /// Returns only flags that are on. Ignored if a single flag is decided.
    public static let enabledFlagsOnly = DecideOptions(rawValue: 1 << 1)
    /// Uses no stored assignments except overrides, and makes no new ones.
    public static let ignoreUserProfileService = DecideOptions(rawValue: 1 << 2)
    /// Includes the reasons that the Optimizely Agent gives.
    public static let includeReasons = DecideOptions(rawValue: 1 << 3)
    /// Includes the reasons of Holdfast's own API, which are more detailed than the Agent's: they include the result of
    /// bucketing, and the attributes that an audience lacks.
    public static let includeAllReasons: DecideOptions = [.includeReasons, DecideOptions(rawValue: 1 << 5)]
    /// Leaves out the values of variables.
    public static let excludeVariables = DecideOptions(rawValue: 1 << 4)

    /// - Parameter name: the name in SDKs and in the Optimizely Agent, such as `INCLUDE_REASONS`.
    /// - Returns: `nil` if the name is unknown.
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

/// One or several decisions with their side effects, which the caller has to perform.
public struct DecisionResult<Value: Sendable>: Sendable {
    public let value: Value
    /// The decision events to send, in order. Includes those of flags that were left out because they are off.
    public let impressions: [Impression]
    /// The assignments to store.
    public let newAssignments: [NewAssignment]
    /// Whether an assignment of the user was ignored because the datafile does not have its variation. If the datafile
    /// is outdated, the variation may exist nevertheless.
    public let hasStaleAssignment: Bool

    public init(
        value: Value, impressions: [Impression] = [], newAssignments: [NewAssignment] = [],
        hasStaleAssignment: Bool = false
    ) {
        self.value = value
        self.impressions = impressions
        self.newAssignments = newAssignments
        self.hasStaleAssignment = hasStaleAssignment
    }
}
