import JSON

/// One call of ``DecisionService``: decides one or several flags or experiments for one user with the same options, and
/// collects the side effects of all decisions: decision events, new assignments, and the steps of an explanation.
///
/// The decisions are in extensions: `DecisionRun+Flag.swift` decides flags by their holdouts, experiments and delivery
/// rules, `DecisionRun+Experiment.swift` decides one experiment, and `DecisionRun+Bucketing.swift` looks up the
/// variation at the user's bucket value.
final class DecisionRun {
    let datafile: Datafile
    private(set) var user: User
    /// The id that is hashed to bucket the user.
    let bucketingID: Identifier
    /// The user's profile; `nil` if the caller has none.
    private let stored: (any StoredAssignments)?
    /// The ids of the variations forced on the user for a test, by experiment id.
    private let forcedVariations: [Identifier: Identifier]?
    /// Whether assignments are read from the profile, and new ones stored in it.
    let usesProfile: Bool
    let options: DecideOptions
    /// Which reasons are collected.
    let detail: Reasons.Detail
    /// The reasons for the current decision.
    var reasons: Reasons
    /// The assignments of the decisions so far. Later decisions of the run treat them as stored.
    private(set) var newAssignments: [NewAssignment] = []
    /// The variation ids of ``newAssignments`` by experiment id. Empty while the assignments are few enough for a
    /// linear search.
    private var newVariations: [Identifier: Identifier] = [:]
    /// Up to this many assignments, a linear search is used.
    private static let linearSearchLimit = 8
    /// The decision events of the decisions so far.
    private(set) var impressions: [Impression] = []
    /// See ``DecisionResult/hasStaleAssignment``.
    private(set) var hasStaleAssignment = false
    /// Whether to skip the audience and the traffic, because an SDK has found that they admit the user.
    var isAdmitted = false
    /// The steps of the decision; `nil` unless an explanation is requested.
    var trace: DecisionTrace?

    /// - Parameter detail: `nil` to choose the reasons by the options.
    init(
        datafile: Datafile, user: User, stored: (any StoredAssignments)?, options: DecideOptions,
        detail: Reasons.Detail? = nil
    ) {
        self.datafile = datafile
        self.user = datafile.hasLargeAudiences ? user.cachingConditions() : user
        bucketingID = user.bucketingID
        self.stored = stored
        if let stored {
            forcedVariations = stored.forcedVariations
            self.user.storedAttributes = stored.attributes
            usesProfile = !options.contains(.ignoreUserProfileService)
        } else {
            forcedVariations = nil
            self.user.storedAttributes = nil
            usesProfile = false
        }
        self.options = options
        self.detail = detail ?? DecisionRun.detail(for: options)
        reasons = Reasons(self.detail)
    }

    private static func detail(for options: DecideOptions) -> Reasons.Detail {
        if options.contains(.includeAllReasons) { return .full }
        return options.contains(.includeReasons) ? .agent : .none
    }

    /// The outcome of one experiment.
    struct Outcome {
        var variation: Variation?
        var source: DecisionSource
        /// See ``StoredAssignment/isFromAnonymousProfile``.
        var isFromAnonymousProfile = false

        static let none = Outcome(variation: nil, source: .none)
    }

    /// Returns the variation forced on the user for a test, as an override.
    func forcedAssignment(in experiment: Experiment) -> StoredAssignment? {
        forcedVariations?[experiment.id].map { StoredAssignment(variationID: $0, isOverride: true) }
    }

    /// Returns the assignment that this run has made, or else the stored one.
    func assignment(in experiment: Experiment) -> StoredAssignment? {
        if let variationID = newVariation(in: experiment.id) { return StoredAssignment(variationID: variationID) }
        return stored?.assignment(experimentID: experiment.id)
    }

    /// Returns the assignment from before an override, which counts if the override's variation no longer exists.
    func assignmentBeneathOverride(in experiment: Experiment) -> StoredAssignment? {
        stored?.variationID(beneathOverrideIn: experiment.id).map { StoredAssignment(variationID: $0) }
    }

    /// Whether the user's profile has room for a further assignment. Only for an experiment in which the user has none
    /// yet.
    func hasRoom(for experiment: Experiment) -> Bool {
        stored?.hasRoom(for: experiment.id) ?? true
    }

    /// Adds an assignment that the caller should store.
    func keep(_ assignment: NewAssignment) {
        newAssignments.append(assignment)
        // Later decisions of the run find a borrowed variation in the anonymous profile again.
        guard !assignment.isFromAnonymousProfile else { return }
        if !newVariations.isEmpty {
            newVariations[assignment.experimentID] = assignment.variationID
        } else if newAssignments.count > Self.linearSearchLimit {
            newVariations = Dictionary(
                newAssignments.lazy.filter { !$0.isFromAnonymousProfile }.map { ($0.experimentID, $0.variationID) },
                uniquingKeysWith: { $1 })
        }
    }

    /// Returns the id of the variation that this run has assigned in an experiment.
    private func newVariation(in experimentID: Identifier) -> Identifier? {
        if !newVariations.isEmpty { return newVariations[experimentID] }
        return newAssignments.last { $0.experimentID == experimentID && !$0.isFromAnonymousProfile }?.variationID
    }

    /// Records that the datafile does not have the variation that the user is assigned to.
    func noteStaleAssignment() {
        hasStaleAssignment = true
    }

    /// Returns a value together with the side effects of the run.
    func result<Value>(_ value: Value) -> DecisionResult<Value> {
        DecisionResult(
            value: value, impressions: impressions, newAssignments: newAssignments,
            hasStaleAssignment: hasStaleAssignment)
    }

    func add(_ impression: Impression) {
        impressions.append(impression)
    }

    /// Adds a reason if the bucketing id in the request is invalid, in the words of the Optimizely Agent.
    func explainInvalidBucketingID(for rule: @autoclosure () -> String) {
        guard detail != .none, let value = user.invalidBucketingID else { return }
        let text = String(decoding: value.encoded(), as: UTF8.self)
        reasons.add("Error computing bucketing ID for \(rule()): \"invalid bucketing ID provided: \\\"\(text)\\\"\"")
    }
}

/// The outcome of one flag: the rule that applied, and its variation.
struct FlagOutcome {
    var rule: Rule?
    var type: Decision.RuleType
    var variation: Variation?
    var source: DecisionSource
    /// The global holdout that holds the user out of other rules, but exempts this one.
    var exemptingHoldout: (holdout: Holdout, variation: Variation)?

    /// No rule applied.
    static let nothing = FlagOutcome(rule: nil, type: .rollout, variation: nil, source: .none)

    init(rule: Rule?, type: Decision.RuleType, variation: Variation?, source: DecisionSource) {
        self.rule = rule
        self.type = type
        self.variation = variation
        self.source = source
    }

    init(heldOutBy holdout: Holdout, _ variation: Variation) {
        self.init(rule: .holdout(holdout), type: .holdout, variation: variation, source: .holdout)
    }
}

/// What decided a flag: an experiment, a delivery rule or a holdout.
enum Rule {
    case experiment(Experiment)
    case holdout(Holdout)

    var id: Identifier {
        switch self {
        case .experiment(let experiment): experiment.id
        case .holdout(let holdout): holdout.id
        }
    }

    var key: Identifier {
        switch self {
        case .experiment(let experiment): experiment.key
        case .holdout(let holdout): holdout.key
        }
    }

    /// Empty for a holdout, which has no campaign.
    var layerID: Identifier {
        switch self {
        case .experiment(let experiment): experiment.layerID
        case .holdout: ""
        }
    }
}

/// Collects the reasons for a decision. The texts are built only if they are requested.
struct Reasons: Sendable {
    enum Detail: Int, Sendable {
        case none
        /// The reasons that the Optimizely Agent gives.
        case agent
        /// The reasons of Holdfast's own API: also the result of bucketing, which the Agent only logs, and the
        /// attributes that an audience lacks instead of an evaluation error.
        case full
    }

    private(set) var texts: [String] = []
    private let detail: Detail

    init(_ detail: Detail) {
        self.detail = detail
    }

    /// Adds a reason that both the Agent and Holdfast's own API give.
    mutating func add(_ text: @autoclosure () -> String) {
        if detail != .none { texts.append(text()) }
    }

    /// Adds a reason that only the Agent gives.
    mutating func addForAgent(_ text: @autoclosure () -> String) {
        if detail == .agent { texts.append(text()) }
    }

    /// Adds the reasons of an evaluation that was cached.
    mutating func append(_ texts: ArraySlice<String>) {
        self.texts += texts
    }

    /// Adds a reason that only Holdfast's own API gives.
    mutating func addDetail(_ text: @autoclosure () -> String) {
        if detail == .full { texts.append(text()) }
    }
}
