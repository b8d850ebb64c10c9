public import Bucketing
public import Chronology
public import Definitions
public import Storage

/// Reads the totals of an experiment for the results of a goal, of a metric, or of all metrics of the plan.
public struct ResultsReader {
    /// The access to records of single users, which some results need.
    public struct Users: Sendable {
        let catalog: ProjectCatalog
        let schema: AttributeSchema
        let known: UserTotals.Cache

        public init(_ catalog: ProjectCatalog, _ schema: AttributeSchema, _ known: UserTotals.Cache) {
            self.catalog = catalog
            self.schema = schema
            self.known = known
        }
    }

    private var scope: ResultsScope
    private let users: Users?
    private let session: any StoreSession

    /// - Parameter users: `nil` if there is no filter by single users, and no warning about single users is needed.
    public init(_ scope: ResultsScope, _ session: any StoreSession, users: Users? = nil) {
        self.scope = scope
        self.session = session
        self.users = users
    }

    private var experiment: Experiment { scope.experiment }
    private var query: ResultsQuery { scope.query }

    /// Reads the totals that the query requests: of a goal, of a metric, or without both of the experiment's first
    /// primary metric.
    ///
    /// - Throws: 400 if the experiment has no primary metric; 404 if nothing was frozen at the requested time; 422 if
    ///   the experiment does not have what the query names.
    public func totals() async throws -> ResultsTotals {
        let found =
            if let goal = query.goal { try await totals(of: goal) } else { try await totals(of: scope.metric()) }
        try requireFrozen(found.frozen)
        try query.filter.check(found.measured?.definition)
        var totals = try await filtered(found)
        if let attribute = query.breakdown {
            totals.groups = try await BreakdownResults.read(
                attribute, query.goal ?? totals.measured?.name ?? "", of: experiment,
                frozenAt: totals.frozen?.frozenAt, session)
        }
        return totals
    }

    /// Reads all metrics of a plan.
    public func totals(of plan: MeasuredPlan) async throws -> PlanTotals {
        var reader = self
        reader.scope.query.confidence = 1 - plan.alpha
        var metrics: [(role: Verdict.Role, totals: ResultsTotals)] = []
        for (role, metric) in plan.metrics {
            metrics.append((role, try await reader.filtered(reader.totals(of: metric))))
        }
        // A metric that was added to the plan later has no frozen totals.
        try requireFrozen(metrics.lazy.compactMap(\.totals.frozen).first)
        return PlanTotals(metrics: metrics, alpha: plan.alpha)
    }

    /// Reads the totals of a metric for all users.
    public func totals(of metric: MetricDefinition) async throws -> ResultsTotals {
        let (measured, frozen) = try await MeasuredMetric.read(
            metric, of: experiment.id, frozenAt: scope.frozenAt, session)
        var totals = ResultsTotals(scope: scope, tally: measured.tally, measured: measured, frozen: frozen)
        totals.periods = try await periods(of: measured.name, frozen)
        if frozen == nil, metric.lacksCap {
            totals.userTotals = try await userTotals(measured.name, measured.tally)
        }
        return totals
    }

    /// Reads the totals of a goal for all users.
    private func totals(of goal: Identifier) async throws -> ResultsTotals {
        if let time = scope.frozenAt,
            let frozen = try await session.read(.frozenResults(experimentID: experiment.id, goal: goal, frozenAt: time))
        {
            var totals = ResultsTotals(scope: scope, tally: frozen.tally, frozen: frozen)
            totals.periods = try await periods(of: goal, frozen)
            return totals
        }
        var totals = ResultsTotals(
            scope: scope, tally: try await session.read(.tally(experimentID: experiment.id, goal: goal)))
        totals.periods = try await periods(of: goal, nil)
        // If nobody has reached the goal, a warning names other goals.
        if totals.tally.variations.allSatisfy({ $0.goal.events == 0 }) {
            totals.otherGoals = try await session.read(.goals(experimentID: experiment.id, limit: Self.namedGoals))
        }
        totals.userTotals = try await userTotals(goal, totals.tally)
        return totals
    }

    /// The maximum number of goals that a warning names.
    private static let namedGoals = 20

    private func periods(of name: Identifier, _ frozen: FrozenResults?) async throws -> BreakdownTally? {
        try await AdaptiveResults.read(
            name, of: experiment, in: scope.project, frozenAt: frozen?.frozenAt, session)
    }

    private func userTotals(_ name: Identifier, _ tally: ExperimentTally) async throws -> UserTotals? {
        guard let users else { return nil }
        return try await users.known.totals(name, tally, of: experiment.id, users.catalog, at: scope.now)
    }

    /// Returns the totals, restricted by the query's filter.
    private func filtered(_ totals: ResultsTotals) async throws -> ResultsTotals {
        let definition = totals.measured?.definition
        guard let users, let goal = query.goal ?? definition?.goals.first else { return totals }
        let tallies = try await query.filter.tallies(
            totals.measured?.names ?? [goal],
            definition?.series ?? SeriesDefinition(.sum(.init(goal, .value), cap: nil)), of: experiment, totals.tally,
            enrolledOn: query.enrolledOn, frozenAt: totals.frozen?.frozenAt, users.schema, users.catalog, session)
        guard let last = tallies.last else { return totals }
        return totals.of(last, totals.measured?.of(tallies))
    }

    /// Checks that totals were frozen, if the query names a time. Without a time, a conclusion from a datafile of
    /// another database has no frozen totals, and the current ones are used.
    private func requireFrozen(_ frozen: FrozenResults?) throws(CoreError) {
        guard case .frozen(let time) = query.moment, frozen == nil else { return }
        throw CoreError(.notFound, "no results of '\(experiment.key)' were frozen at \(time.rfc3339)")
    }
}

/// The project, experiment and query of requested results.
public struct ResultsScope: Sendable {
    public let experiment: Experiment
    public let project: Project
    public fileprivate(set) var query: ResultsQuery
    let now: Instant

    public init(_ experiment: Experiment, in project: Project, _ query: ResultsQuery, at now: Instant) {
        self.experiment = experiment
        self.project = project
        self.query = query
        self.now = now
    }

    /// When the requested totals were frozen; `nil` for the current ones.
    fileprivate var frozenAt: Instant? {
        switch query.moment {
        case .ofConclusion: experiment.annotations.frozenAt
        case .live: nil
        case .frozen(let time): time
        }
    }

    /// Returns the metric that the query names, or else the experiment's first primary one.
    fileprivate func metric() throws(CoreError) -> MetricDefinition {
        let metrics = project.metrics(of: experiment)
        guard let key = query.metricKey ?? metrics.primary.first else {
            throw CoreError(
                .invalid, "the query parameter `goal` or `metric` is required: the experiment has no primary metric")
        }
        guard metrics.all.contains(key), let metric = project.definitions.metrics[key] else {
            let known = metrics.all.map(\.string).joined(separator: ", ")
            throw CoreError(
                .unprocessable,
                "`metric` must be one that the experiment measures (\(known.isEmpty ? "none" : known)); got '\(key)'"
                    + Spelling.hint(for: key, among: metrics.all))
        }
        return metric
    }
}

/// The stored totals of an experiment for a goal or a metric, from which results are computed off the event loops.
public struct ResultsTotals: Sendable {
    let scope: ResultsScope
    var tally: ExperimentTally
    /// The metric; `nil` for a goal.
    var measured: MeasuredMetric?
    /// The tallies by allocation period, if the experiment has a bandit.
    var periods: BreakdownTally?
    var otherGoals: [Identifier] = []
    /// The frozen totals of the conclusion that the query requests; `nil` if there are none.
    var frozen: FrozenResults?
    /// The totals of single users; `nil` for frozen or capped totals, and if few users cannot have most of the sum.
    var userTotals: UserTotals?
    /// The totals by the values of an attribute, if the query requests a breakdown.
    var groups: BreakdownResults.Totals?

    var experiment: Experiment { scope.experiment }

    /// Returns the totals of some of the users.
    fileprivate func of(_ tally: ExperimentTally, _ measured: MeasuredMetric?) -> ResultsTotals {
        ResultsTotals(scope: scope, tally: tally, measured: measured, frozen: frozen)
    }

    /// The experiment of the totals: the current one, or the one at the time when they were frozen.
    private struct Subject {
        let experiment: Experiment
        /// The keys of former variations, by id.
        let formerKeys: [Identifier: Identifier]
        let now: Instant
    }

    private func subject() throws(CoreError) -> Subject {
        guard let frozen else {
            return Subject(
                experiment: experiment, formerKeys: scope.project.definitions.retiredVariations(of: experiment),
                now: scope.now)
        }
        let former = try FrozenExperiment(frozen.definition)
        return Subject(
            experiment: former.experiment, formerKeys: former.retiredVariations, now: frozen.frozenAt)
    }

    /// - Throws: 422 if the baseline does not exist; 503 if the frozen experiment does not compile.
    public func results() throws(CoreError) -> ExperimentResults {
        let subject = try subject()
        var results = try results(scope.query, of: subject)
        guard let groups else { return results }
        results.breakdown = try BreakdownResults(groups, of: results) { tally, measured throws(CoreError) in
            try of(tally, measured).results(scope.query, of: subject)
        }
        return results
    }

    /// Computes the results for each day of enrollment.
    public func series() throws(CoreError) -> ResultsSeries {
        let subject = try subject()
        return try ResultsSeries(results(scope.query, of: subject)) { query throws(CoreError) in
            try results(query, of: subject)
        }
    }

    private func results(_ query: ResultsQuery, of subject: Subject) throws(CoreError) -> ExperimentResults {
        var results = try ExperimentResults(
            subject.experiment, sdkKey: scope.project.sdkKey, query, tally, of: measured, periods: periods,
            otherGoals: otherGoals, formerKeys: subject.formerKeys, frozenAt: frozen?.frozenAt, now: subject.now)
        results.userTotals = userTotals
        return results
    }
}

/// The stored totals of all metrics of a plan.
public struct PlanTotals: Sendable {
    let metrics: [(role: Verdict.Role, totals: ResultsTotals)]
    let alpha: Double

    /// The totals of the most important metric.
    public var first: ResultsTotals? { metrics.first?.totals }

    /// - Returns: `nil` if there are no metrics.
    public func results() throws(CoreError) -> PlanResults? {
        var results: [(role: Verdict.Role, results: ExperimentResults)] = []
        for (role, totals) in metrics { results.append((role, try totals.results())) }
        return PlanResults(results, alpha: alpha)
    }
}
