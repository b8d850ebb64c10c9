public import Bucketing
public import Definitions
public import JSON

/// A request for decisions about one user, independent of protocol and format: the flags or experiments to decide, and
/// whether to store assignments and record exposures.
public struct DecisionQuery: Sendable {
    /// The flags or experiments to decide.
    public enum Subject: Sendable {
        /// All flags, in the order of the datafile.
        case allFlags
        /// The flags with these keys, in this order. Unknown keys are left out.
        case flags([Identifier])
        /// The flags whose keys a function chooses from the datafile. The function may be called for several datafiles,
        /// because a newer datafile may become active before the decisions are stored.
        case chosenFlags(@Sendable (Datafile) -> [Identifier])
        /// The experiment with this key or id. A holdout may keep the user out.
        case experiment(Identifier)
        /// The experiment with this id. Audience, traffic and holdouts are not checked, because the SDK that sends the
        /// request has checked them (``DecisionService/predict(_:for:stored:options:)``).
        case prediction(Identifier)
        /// The flags and experiments that a function chooses from the datafile. They are decided as by `activate` of
        /// Optimizely's SDKs: holdouts do not keep the user out of experiments, and each decision of an experiment is
        /// an exposure.
        case activation(@Sendable (Datafile) -> [Activated])

        /// Whether the caller names the flags or experiments, and so evaluates them now. A query for all flags or for
        /// chosen flags requests decisions in advance, and the caller may never use them.
        var namesFlags: Bool {
            switch self {
            case .allFlags, .chosenFlags, .prediction: false
            case .flags, .experiment, .activation: true
            }
        }
    }

    /// An experiment or a flag to activate.
    public enum Activated: Sendable {
        case experiment(Experiment)
        case flag(Flag)
    }

    public private(set) var user: User
    /// The user's id before login; `nil` if the request has none. For an experiment in which the user has no
    /// assignment, the assignment of this id counts, and is stored for the user.
    public let anonymousID: Identifier?
    public let subject: Subject
    public let options: DecideOptions
    /// Whether new assignments are stored. Otherwise the decisions change no profile.
    public let storesAssignments: Bool
    /// Whether the query fails if a read-only store refuses a new assignment. Otherwise the decision is returned
    /// without being stored. It then stays the same as long as the datafile stays the same.
    let requiresStorage: Bool

    /// - Parameter options: with ``DecideOptions/disableDecisionEvent``, exposures are not recorded.
    public init(
        for user: User, anonymousID: Identifier? = nil, _ subject: Subject, options: DecideOptions = [],
        storesAssignments: Bool = true, requiresStorage: Bool = false
    ) {
        self.user = user
        self.anonymousID = anonymousID == user.id ? nil : anonymousID
        self.subject = subject
        self.options = options
        self.storesAssignments = storesAssignments
        self.requiresStorage = requiresStorage
    }

    /// Returns the query without the attributes that are too long or too many for a project; see
    /// ``ProfileInput/usable(_:in:at:)``.
    ///
    /// - Parameter place: the location of the attributes in the body, for errors.
    /// - Throws: 400 if an attribute that audiences use is too long, or if there are too many.
    public func usable(
        in project: Project, at place: @autoclosure () -> JSONPointer = ["attributes"]
    ) throws(CoreError) -> DecisionQuery {
        var query = self
        query.user.attributes = try ProfileInput.usable(user.attributes, in: project, at: place())
        return query
    }

    /// Whether the decisions are recorded as exposures.
    var recordsExposures: Bool { !options.contains(.disableDecisionEvent) }
}

/// The decisions for a ``DecisionQuery``.
public struct Decisions: Sendable {
    /// The project by which the decisions were made. Its datafile may be newer than that of the query's project.
    public let project: Project
    /// The decisions of flags, in the order of the query.
    public var flags: [Decision] = []
    /// The decisions of experiments, in the order of the query. Unknown ones are left out.
    public var experiments: [ExperimentDecision] = []

    /// Adds a reason to the decisions of these experiments, and to the decisions of flags that one of them made.
    mutating func add(_ reason: String, toExperiments ids: [Identifier]) {
        let keys = ids.compactMap { project.datafile.experiment(id: $0)?.key }
        for index in flags.indices where flags[index].ruleKey.map(keys.contains) ?? false {
            flags[index].reasons.append(reason)
        }
        experiments = experiments.map { ids.contains($0.experiment.id) ? $0.adding(reason: reason) : $0 }
    }
}

extension DecisionQuery {
    /// Decides from the stored records of the user, without reading or storing anything.
    func evaluate(in project: Project, _ stored: StickyAssignments) -> DecisionResult<Decisions> {
        let service = DecisionService(datafile: project.datafile)
        switch subject {
        case .allFlags:
            return Self.result(service.decideAll(for: user, stored: stored, options: options), project)
        case .flags(let keys):
            return Self.result(service.decide(keys, for: user, stored: stored, options: options), project)
        case .chosenFlags(let keys):
            return Self.result(
                service.decide(keys(project.datafile), for: user, stored: stored, options: options), project)
        case .experiment(let name):
            return Self.result(
                project.datafile.experiment(keyOrID: name).map {
                    service.assign($0, for: user, stored: stored, options: options)
                }, project)
        case .prediction(let id):
            return Self.result(
                project.datafile.experiment(id: id).map {
                    service.predict($0, for: user, stored: stored, options: options)
                }, project)
        case .activation(let activated):
            return activate(activated(project.datafile), service, project, stored)
        }
    }

    /// Returns the result for a single experiment; `nil` if it is unknown.
    private static func result(_ decision: ExperimentDecision?, _ project: Project) -> DecisionResult<Decisions> {
        guard let decision else { return DecisionResult(value: Decisions(project: project)) }
        return DecisionResult(
            value: Decisions(project: project, experiments: [decision]),
            newAssignments: decision.newAssignment.map { [$0] } ?? [],
            hasStaleAssignment: decision.hasStaleAssignment)
    }

    /// Returns the result for flags.
    private static func result(_ result: DecisionResult<[Decision]>, _ project: Project) -> DecisionResult<Decisions> {
        DecisionResult(
            value: Decisions(project: project, flags: result.value), impressions: result.impressions,
            newAssignments: result.newAssignments, hasStaleAssignment: result.hasStaleAssignment)
    }

    /// Decides each flag and experiment independently.
    private func activate(
        _ activated: [Activated], _ service: DecisionService, _ project: Project, _ stored: StickyAssignments
    ) -> DecisionResult<Decisions> {
        let user = user.cachingConditions()
        var decisions = Decisions(project: project)
        var impressions: [Impression] = []
        var assignments: [NewAssignment] = []
        var hasStaleAssignment = false
        for subject in activated {
            switch subject {
            case .experiment(let experiment):
                let decision = service.variation(of: experiment, for: user, stored: stored, options: options)
                decisions.experiments.append(decision)
                if let new = decision.newAssignment { assignments.append(new) }
                hasStaleAssignment = hasStaleAssignment || decision.hasStaleAssignment
                // The winner of a concluded experiment is delivered, not tested.
                if recordsExposures, experiment.isRunning, let variation = decision.variation {
                    impressions.append(
                        Impression(activating: experiment, variation: variation, source: decision.source))
                }
            case .flag(let flag):
                let result = service.decide([flag.key], for: user, stored: stored, options: options)
                decisions.flags += result.value
                assignments += result.newAssignments
                hasStaleAssignment = hasStaleAssignment || result.hasStaleAssignment
                impressions += result.impressions
            }
        }
        return DecisionResult(
            value: decisions, impressions: impressions, newAssignments: Self.eachExperimentOnce(assignments),
            hasStaleAssignment: hasStaleAssignment)
    }

    /// Removes duplicates: an experiment that is requested both by its key and through a flag is decided twice, with
    /// the same result.
    private static func eachExperimentOnce(_ assignments: [NewAssignment]) -> [NewAssignment] {
        var seen: Set<Identifier> = []
        return assignments.filter { seen.insert($0.experimentID).inserted }
    }
}
