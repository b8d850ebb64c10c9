/// What a user gets of one experiment.
public struct ExperimentDecision: Sendable {
    public let experiment: Experiment
    public let variation: Variation?
    public let origin: Origin
    /// The holdout that keeps the user out, where ``origin`` is ``Origin/holdout``.
    public let holdout: Holdout?
    /// Empty unless asked for.
    public let reasons: [String]
    /// Whether no decision could be made, because a contextual bandit had to be asked.
    public let hasFailed: Bool
    /// What is to be stored; `nil` if the variation is stored already or is not to be.
    public let newAssignment: NewAssignment?
    /// As in ``DecisionResult/passesOverAssignment``.
    public let passesOverAssignment: Bool
}
