import JSON

/// One call of the decision service: the same user and options for all flags.
final class DecisionRun {
    let datafile: Datafile
    private(set) var user: User
    let bucketingID: Identifier
    let stored: (any StoredAssignments)?
    let options: DecideOptions
    let detail: Reasons.Detail
    /// The reasons for the decision that is being made.
    var reasons: Reasons
    /// What the decisions so far have assigned; later ones find it as if it were stored.
    private(set) var newAssignments: [NewAssignment] = []
    /// Those of ``newAssignments`` by experiment, when they are too many to be walked.
    private var newVariations: [Identifier: Identifier] = [:]
    private static let walkable = 8
    private(set) var impressions: [Impression] = []
    private(set) var passesOverAssignment = false

    init(
        datafile: Datafile, user: User, stored: (any StoredAssignments)?, options: DecideOptions,
        detail: Reasons.Detail? = nil
    ) {
        self.datafile = datafile
        self.user = datafile.hasLongAudiences ? user.rememberingAnswers() : user
        bucketingID = user.bucketingID
        self.stored = stored
        self.user.known = stored?.attributes
        self.options = options
        self.detail =
            detail ?? (options.contains(.includeAllReasons) ? .full : options.contains(.includeReasons) ? .agent : .none)
        reasons = Reasons(self.detail)
    }

    /// The outcome of one rule.
    struct Outcome {
        var variation: Variation?
        var origin: Origin
        var hasFailed = false

        static let none = Outcome(variation: nil, origin: .none)
    }

    func assignment(in experiment: Experiment) -> StoredAssignment? {
        if let variationID = newVariation(in: experiment.id) { return StoredAssignment(variationID: variationID) }
        return stored?.assignment(experimentID: experiment.id)
    }

    func keep(_ assignment: NewAssignment) {
        newAssignments.append(assignment)
        if !newVariations.isEmpty {
            newVariations[assignment.experimentID] = assignment.variationID
        } else if newAssignments.count > Self.walkable {
            newVariations = Dictionary(
                newAssignments.map { ($0.experimentID, $0.variationID) }, uniquingKeysWith: { $1 })
        }
    }

    private func newVariation(in experimentID: Identifier) -> Identifier? {
        if !newVariations.isEmpty { return newVariations[experimentID] }
        return newAssignments.last { $0.experimentID == experimentID }?.variationID
    }

    /// Notes that the datafile does not list the variation that the user was assigned to.
    func passOverAssignment() {
        passesOverAssignment = true
    }

    func result<Value>(_ value: Value) -> DecisionResult<Value> {
        DecisionResult(
            value: value, impressions: impressions, newAssignments: newAssignments,
            passesOverAssignment: passesOverAssignment)
    }

    func send(_ impression: Impression) {
        impressions.append(impression)
    }

    /// Notes a bucketing id that is of no use, as the Agent words it.
    func noteInvalidBucketingID(for rule: @autoclosure () -> String) {
        guard detail != .none, let value = user.invalidBucketingID else { return }
        let text = String(decoding: value.encoded(), as: UTF8.self)
        reasons.add("Error computing bucketing ID for \(rule()): \"invalid bucketing ID provided: \\\"\(text)\\\"\"")
    }
}
