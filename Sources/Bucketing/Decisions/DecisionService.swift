/// Decides what users get, as the reference SDK's `decide` and `get_variation` do.
///
/// Nothing is read or stored on the way: what is stored of the user is handed in, and what is to be stored comes
/// back with the answer.
public struct DecisionService: Sendable {
    public let datafile: Datafile

    public init(datafile: Datafile) {
        self.datafile = datafile
    }

    /// - Returns: `nil` if there is no such flag. For the reason see ``reasonForUnknownFlag(_:)``.
    public func decide(
        _ flagKey: Identifier, for user: User, stored: (any StoredAssignments)? = nil, options: DecideOptions = []
    ) -> DecisionResult<Decision>? {
        guard let flag = datafile.flag(key: flagKey) else { return nil }
        let run = DecisionRun(datafile: datafile, user: user, stored: stored, options: options)
        let decision = run.decide(flag)
        return run.result(decision)
    }

    /// Decides for several flags; those that the datafile lacks are left out.
    public func decide(
        _ flagKeys: [Identifier], for user: User, stored: (any StoredAssignments)? = nil, options: DecideOptions = []
    ) -> DecisionResult<[Decision]> {
        decide(flagKeys.compactMap(datafile.flag), user, stored, options)
    }

    /// Decides for all flags, in the order of the datafile.
    public func decideAll(
        for user: User, stored: (any StoredAssignments)? = nil, options: DecideOptions = []
    ) -> DecisionResult<[Decision]> {
        decide(datafile.flags, user, stored, options)
    }

    private func decide(
        _ flags: [Flag], _ user: User, _ stored: (any StoredAssignments)?, _ options: DecideOptions
    ) -> DecisionResult<[Decision]> {
        let run = DecisionRun(datafile: datafile, user: user, stored: stored, options: options)
        var decisions: [Decision] = []
        decisions.reserveCapacity(flags.count)
        for flag in flags {
            let decision = run.decide(flag)
            if decision.isEnabled || decision.hasFailed || !options.contains(.enabledFlagsOnly) {
                decisions.append(decision)
            }
        }
        return run.result(decisions)
    }

    /// The variation of one experiment, whatever flag it belongs to; holdouts do not count, as in the reference.
    public func variation(
        of experiment: Experiment, for user: User, stored: (any StoredAssignments)? = nil,
        options: DecideOptions = []
    ) -> ExperimentDecision {
        experimentRun(user, stored, options).decide(experiment)
    }

    /// The variation of one experiment, unless a holdout keeps the user out.
    public func assign(
        _ experiment: Experiment, for user: User, stored: (any StoredAssignments)? = nil,
        options: DecideOptions = []
    ) -> ExperimentDecision {
        experimentRun(user, stored, options).decideUnlessHeldOut(experiment)
    }

    /// A run for one experiment, whose reasons tell more than those of a flag.
    private func experimentRun(
        _ user: User, _ stored: (any StoredAssignments)?, _ options: DecideOptions
    ) -> DecisionRun {
        DecisionRun(
            datafile: datafile, user: user, stored: stored, options: options,
            detail: options.contains(.includeReasons) ? .full : Reasons.Detail.none
        )
    }

    /// What the SDKs and the Agent answer for a flag that does not exist.
    public static func reasonForUnknownFlag(_ key: Identifier) -> String {
        "No flag was found for key \"\(key)\"."
    }
}
