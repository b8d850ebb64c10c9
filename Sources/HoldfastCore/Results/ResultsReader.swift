public import Bucketing
public import Chronology
public import Definitions
public import Storage

/// Reads the totals of an experiment for the results of a goal, of a metric, or of all metrics of the plan. The results
/// are then computed from ``ResultsTotals`` or ``PlanTotals``.
public struct ResultsReader {
    /// The access to records of single users. Filters by segment or time need the records. The warning that a few users
    /// have most of the sum also needs them.
    public struct Users: Sendable {
        let catalog: ProjectCatalog
        let schema: AttributeSchema
        /// The totals of single users that were read recently.
        let totalsCache: UserTotals.Cache

        public init(_ catalog: ProjectCatalog, _ schema: AttributeSchema, _ totalsCache: UserTotals.Cache) {
            self.catalog = catalog
            self.schema = schema
            self.totalsCache = totalsCache
        }
    }

    private var scope: ResultsScope
    private let users: Users?
    private let session: any StoreSession

    /// - Parameter users: `nil` if the query has no filter by segment or time, and the warning about single users is
    ///   not needed.
    public init(_ scope: ResultsScope, _ session: any StoreSession, users: Users? = nil) {
        self.scope = scope
        self.session = session
        self.users = users
    }

    private var experiment: Experiment { scope.experiment }
    private var query: ResultsQuery { scope.query }

    /// Reads the totals of the goal or the metric that the query names, or else of the experiment's first primary
    /// metric.
    ///
    /// - Throws: 400 if the query names nothing and the experiment has no primary metric; 404 if nothing was frozen at
    ///   the requested time; 422 if the experiment does not have the metric, the breakdown or the segment of the query.
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

    /// Reads the totals of all metrics of a plan.
    ///
    /// - Throws: 404 if nothing was frozen at the requested time.
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
        // If nobody has reached the goal, a warning lists other goals.
        if totals.tally.variations.allSatisfy({ $0.goal.events == 0 }) {
            totals.otherGoals = try await session.read(.goals(experimentID: experiment.id, limit: Self.namedGoals))
        }
        totals.userTotals = try await userTotals(goal, totals.tally)
        return totals
    }

    /// The maximum number of goals that a warning lists.
    private static let namedGoals = 20

    /// Reads the tallies by allocation period, by which a bandit's users are weighted; `nil` without a bandit.
    private func periods(of name: Identifier, _ frozen: FrozenResults?) async throws -> BreakdownTally? {
        try await AdaptiveResults.read(
            name, of: experiment, in: scope.project, frozenAt: frozen?.frozenAt, session)
    }

    /// Reads the totals of single users; `nil` if a few users cannot have most of the sum.
    private func userTotals(_ name: Identifier, _ tally: ExperimentTally) async throws -> UserTotals? {
        guard let users else { return nil }
        return try await users.totalsCache.totals(name, tally, of: experiment.id, users.catalog, at: scope.now)
    }

    /// Returns the totals of the users and events that the query's filter selects.
    private func filtered(_ totals: ResultsTotals) async throws -> ResultsTotals {
        let definition = totals.measured?.definition
        guard let users, let goal = query.goal ?? definition?.goals.first else { return totals }
        // A filter that restricts nothing returns no tallies.
        let tallies = try await query.filter.tallies(
            totals.measured?.names ?? [goal],
            definition?.series ?? SeriesDefinition(.sum(.init(goal, .value), cap: nil)), of: experiment, totals.tally,
            enrolledOn: query.enrolledOn, frozenAt: totals.frozen?.frozenAt, users.schema, users.catalog, session)
        guard let last = tallies.last else { return totals }
        return totals.of(last, totals.measured?.of(tallies))
    }

    /// Checks that there are frozen totals if the query names the time at which they were frozen.
    ///
    /// Without a time, missing frozen totals are no error: an experiment that was concluded in another database has
    /// none here, so its current totals are used.
    ///
    /// - Throws: 404 if there are no totals of the requested time.
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

    /// The time at which the requested totals were frozen; `nil` for current totals.
    fileprivate var frozenAt: Instant? {
        switch query.moment {
        case .ofConclusion: experiment.annotations.frozenAt
        case .live: nil
        case .frozen(let time): time
        }
    }

    /// Returns the metric that the query names, or else the experiment's first primary metric.
    ///
    /// - Throws: 400 if there is none; 422 if the experiment does not measure the metric.
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
