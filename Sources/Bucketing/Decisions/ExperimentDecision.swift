/// What a user gets of one experiment. A class: it is handed on several times, and is large to copy.
public final class ExperimentDecision: Sendable {
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

    init(
        experiment: Experiment, variation: Variation?, origin: Origin, holdout: Holdout?, reasons: [String],
        hasFailed: Bool, newAssignment: NewAssignment?, passesOverAssignment: Bool
    ) {
        self.experiment = experiment
        self.variation = variation
        self.origin = origin
        self.holdout = holdout
        self.reasons = reasons
        self.hasFailed = hasFailed
        self.newAssignment = newAssignment
        self.passesOverAssignment = passesOverAssignment
    }
}
