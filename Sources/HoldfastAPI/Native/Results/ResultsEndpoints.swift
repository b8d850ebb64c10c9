import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/experiments/{key}/results`: the results of an experiment, and `/v1/holdouts/{key}/results`, which compares the users
/// who are not held out with those who are. Read from stored tallies, off the event loops.
struct ResultsEndpoints {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView
    var areOfHoldouts = false

    /// As JSON, or with `?format=csv` for a spreadsheet. Without a goal and a metric, JSON has all metrics of the experiment's
    /// plan, with one verdict.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let known = ResultsQuery.parameters.filter {
            !areOfHoldouts || !["breakdown", "attribute", "value"].contains($0)
        }
        let parameters = try request.query(knowing: known)
        let query = try ResultsQuery(parameters)
        if query.goal == nil, query.metricKey == nil, query.breakdown == nil, query.format == .json {
            let (project, experiment) = try experiment(request, call)
            if let plan = try await services.compute({ project.plan(of: experiment) }) {
                if let wrong = parameters.keys.sorted().first(where: { !ResultsQuery.planParameters.contains($0) }) {
                    throw CoreError(
                        .invalid,
                        "`\(wrong)` must be left out without `goal` and `metric`: the plan's alpha holds for all")
                }
                return .json(
                    try await compute(plan.metrics, plan.alpha, plan.description, of: experiment, project, query))
            }
        }
        switch query.format {
        case .json: return .json(try await compute(request, call, query) { $0.json })
        case .csv:
            let bytes = try await compute(request, call, query) { Array($0.csv.utf8) }
            return Response(.ok, contentType: "text/csv; charset=utf-8", body: .bytes(bytes))
        }
    }

    /// A plot of the lifts with their intervals.
    func getChart(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let parameters = ResultsQuery.parameters.filter { !["format", "by", "breakdown"].contains($0) }
        let bytes = try await compute(request, call, ResultsQuery(request.query(knowing: parameters))) {
            Array(ResultsChart($0).svg.utf8)
        }
        return Response(.ok, contentType: "image/svg+xml", body: .bytes(bytes))
    }

    /// A page that can be printed and sent, with all metrics of the plan, or with one goal.
    func getReport(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let known = ["goal"] + ResultsQuery.planParameters.filter { $0 != "format" }
        let query = try ResultsQuery(request.query(knowing: known))
        let (project, experiment) = try experiment(request, call)
        let now = services.store.clock.now()
        let author = call.author(request).name
        let nonce = (0..<2).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }.joined()
        let description = experiment.description(in: project).object ?? JSONObject()
        let bytes: [UInt8]
        if query.goal == nil, let plan = try await services.compute({ project.plan(of: experiment) }) {
            let measured = try await totals(of: plan.metrics, experiment, project, query)
            bytes = try await services.compute { [query] in
                guard let results = try Self.results(of: measured, plan.alpha, experiment, project, query, now) else {
                    return []
                }
                let series = try measured.first.map { try Self.series($0.totals, experiment, project, query, now) }
                let report = ExperimentReport(results, of: description, series: series, madeAt: now, by: author)
                return Array(report.page(nonce: nonce).utf8)
            }
        } else {
            let totals = try await totals(experiment, project, query)
            bytes = try await services.compute { [query] in
                let results = try Self.results(of: totals, experiment, project, query, now)
                let series = try Self.series(totals, experiment, project, query, now)
                let report = ExperimentReport(results, of: description, series: series, madeAt: now, by: author)
                return Array(report.page(nonce: nonce).utf8)
            }
        }
        var response = Response(.ok, contentType: "text/html; charset=utf-8", body: .bytes(bytes))
        response.fields = [
            ("Content-Security-Policy", "\(ExperimentReport.policy(nonce: nonce)); sandbox; frame-ancestors 'none'"),
            ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store"),
        ]
        return response
    }

    /// Reads what the store has of all metrics of a plan.
    private func totals(
        of metrics: [(role: PlanVerdict.Role, metric: MetricDefinition)], _ experiment: Experiment, _ project: Project,
        _ query: ResultsQuery
    ) async throws -> [(role: PlanVerdict.Role, totals: Totals)] {
        var measured: [(role: PlanVerdict.Role, totals: Totals)] = []
        for (role, metric) in metrics {
            measured.append(
                (role, try await filtered(totals(of: metric, experiment, project, query), experiment, query)))
        }
        // A metric that joined the plan since has none.
        try Self.requireFrozen(measured.lazy.compactMap(\.totals.frozen).first, of: experiment, query)
        return measured
    }

    private static func results(
        of measured: [(role: PlanVerdict.Role, totals: Totals)], _ alpha: Double, _ experiment: Experiment,
        _ project: Project, _ query: ResultsQuery, _ now: Timestamp
    ) throws(CoreError) -> PlanResults? {
        var query = query
        query.confidence = 1 - alpha
        var results: [(role: PlanVerdict.Role, results: ExperimentResults)] = []
        for (role, totals) in measured {
            results.append((role, try Self.results(of: totals, experiment, project, query, now)))
        }
        return PlanResults(results, alpha: alpha)
    }

    /// Computes the results of all metrics of a plan, off the event loop.
    private func compute(
        _ metrics: [(role: PlanVerdict.Role, metric: MetricDefinition)], _ alpha: Double, _ description: JSONValue,
        of experiment: Experiment, _ project: Project, _ query: ResultsQuery
    ) async throws -> [UInt8] {
        let measured = try await totals(of: metrics, experiment, project, query)
        let now = services.store.clock.now()
        return try await services.compute {
            try Self.results(of: measured, alpha, experiment, project, query, now)?.json(plan: description).encoded()
                ?? []
        }
    }

    /// Computes the results and renders them, off the event loop.
    private func compute(
        _ request: borrowing Request, _ call: Call, _ query: ResultsQuery,
        _ render: @escaping @Sendable (ExperimentResults) -> [UInt8]
    ) async throws -> [UInt8] {
        let (project, experiment) = try experiment(request, call)
        let totals = try await totals(experiment, project, query)
        var groups: BreakdownResults.Totals?
        if let attribute = query.breakdown {
            groups = try await BreakdownResults.read(
                attribute, query.goal ?? totals.measured?.name ?? "", of: experiment,
                frozenAt: totals.frozen?.frozenAt, store)
        }
        let now = services.store.clock.now()
        return try await services.compute { [groups] in
            var results = try Self.results(of: totals, experiment, project, query, now)
            if let groups {
                try results.divide(by: groups) { tally, measured throws(CoreError) in
                    var some = totals
                    (some.tally, some.measured, some.periods, some.userTotals) = (tally, measured, nil, nil)
                    return try Self.results(of: some, experiment, project, query, now)
                }
            }
            return render(results)
        }
    }

    /// How the results grew, by days of enrollment.
    func getSeries(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let known = ResultsQuery.parameters.filter { !["by", "breakdown", "mde"].contains($0) }
        let query = try ResultsQuery(request.query(knowing: known))
        let (project, experiment) = try experiment(request, call)
        let totals = try await totals(experiment, project, query)
        let now = services.store.clock.now()
        let bytes = try await services.compute {
            let series = try Self.series(totals, experiment, project, query, now)
            return query.format == .csv ? Array(series.csv.utf8) : series.json.encoded()
        }
        return query.format == .csv
            ? Response(.ok, contentType: "text/csv; charset=utf-8", body: .bytes(bytes)) : .json(bytes)
    }

    private static func series(
        _ totals: Totals, _ experiment: Experiment, _ project: Project, _ query: ResultsQuery, _ now: Timestamp
    ) throws(CoreError) -> ResultsSeries {
        try ResultsSeries(results(of: totals, experiment, project, query, now)) { query throws(CoreError) in
            try results(of: totals, experiment, project, query, now)
        }
    }

    /// Reads what the store has of the goal or the metric that a query is about.
    private func totals(
        _ experiment: Experiment, _ project: Project, _ query: ResultsQuery
    ) async throws -> Totals {
        let found =
            if let goal = query.goal {
                try await totals(of: goal, experiment, project, query)
            } else {
                try await totals(of: Self.metric(query, of: experiment, project), experiment, project, query)
            }
        try Self.requireFrozen(found.frozen, of: experiment, query)
        try query.filter.check(found.measured?.definition)
        return try await filtered(found, experiment, query)
    }

    /// Returns the totals of the users whom a query asks for.
    private func filtered(
        _ totals: Totals, _ experiment: Experiment, _ query: ResultsQuery
    ) async throws -> Totals {
        let definition = totals.measured?.definition
        guard let goal = query.goal ?? definition?.goals.first else { return totals }
        let tallies = try await query.filter.tallies(
            totals.measured?.names ?? [goal],
            definition?.series ?? SeriesDefinition(.sum(.init(goal, .value), cap: nil)), of: experiment, totals.tally,
            enrolledOn: query.enrolledOn, frozenAt: totals.frozen?.frozenAt, projects.schema, services.projects, store)
        guard let last = tallies.last else { return totals }
        var some = totals
        (some.tally, some.measured) = (last, totals.measured?.of(tallies))
        (some.periods, some.otherGoals, some.userTotals) = (nil, [], nil)
        return some
    }

    /// What the store has of a goal or a metric.
    private struct Totals {
        var tally: ExperimentTally
        var measured: MeasuredMetric?
        /// By allocation periods, if the experiment has a bandit.
        var periods: BreakdownTally?
        var otherGoals: [Identifier] = []
        /// Those of the conclusion that the query means, if any were frozen then.
        var frozen: FrozenResults?
        /// Of present totals without a cap, if few users may have most of the sum.
        var userTotals: UserTotals?
    }

    private func totals(
        of metric: MetricDefinition, _ experiment: Experiment, _ project: Project, _ query: ResultsQuery
    ) async throws -> Totals {
        let (measured, frozen) = try await MeasuredMetric.read(
            metric, of: experiment.id, frozenAt: experiment.frozenAt(query.moment), store)
        let periods = try await AdaptiveResults.read(
            measured.name, of: experiment, in: project, frozenAt: frozen?.frozenAt, store)
        var totals = Totals(tally: measured.tally, measured: measured, periods: periods, frozen: frozen)
        if frozen == nil, metric.lacksCap {
            totals.userTotals = try await services.userTotals(measured.name, measured.tally, of: experiment.id)
        }
        return totals
    }

    private func totals(
        of goal: Identifier, _ experiment: Experiment, _ project: Project, _ query: ResultsQuery
    ) async throws -> Totals {
        func periods(_ frozenAt: Timestamp?) async throws(StorageError) -> BreakdownTally? {
            try await AdaptiveResults.read(goal, of: experiment, in: project, frozenAt: frozenAt, store)
        }
        if let time = experiment.frozenAt(query.moment),
            let frozen = try await store.read(.frozenResults(experimentID: experiment.id, goal: goal, frozenAt: time))
        {
            return Totals(tally: frozen.tally, periods: try await periods(frozen.frozenAt), frozen: frozen)
        }
        var totals = Totals(
            tally: try await store.read(.tally(experimentID: experiment.id, goal: goal)),
            periods: try await periods(nil))
        // If nobody has reached the goal, a warning names others.
        if totals.tally.variations.allSatisfy({ $0.goal.events == 0 }) {
            totals.otherGoals = try await store.read(.goals(experimentID: experiment.id, limit: Self.namedGoals))
        }
        totals.userTotals = try await services.userTotals(goal, totals.tally, of: experiment.id)
        return totals
    }

    /// - Throws: 404 if the query asks for what was frozen at a time, and nothing was. Without a time, a conclusion
    ///   that came with a datafile of another database shows the present totals.
    private static func requireFrozen(
        _ frozen: FrozenResults?, of experiment: Experiment, _ query: ResultsQuery
    ) throws(CoreError) {
        guard case .frozen(let time) = query.moment, frozen == nil else { return }
        throw CoreError(.notFound, "no results of '\(experiment.key)' were frozen at \(time.rfc3339)")
    }

    private static func results(
        of totals: Totals, _ experiment: Experiment, _ project: Project, _ query: ResultsQuery, _ now: Timestamp
    ) throws(CoreError) -> ExperimentResults {
        guard let frozen = totals.frozen else {
            var results = try ExperimentResults(
                experiment, sdkKey: project.sdkKey, query, totals.tally, of: totals.measured, periods: totals.periods,
                otherGoals: totals.otherGoals, formerKeys: project.definitions.retiredVariations(of: experiment),
                now: now)
            results.userTotals = totals.userTotals
            return results
        }
        let former = try FrozenExperiment(frozen.definition)
        return try ExperimentResults(
            former.experiment, sdkKey: project.sdkKey, query, totals.tally, of: totals.measured,
            periods: totals.periods,
            formerKeys: former.retiredVariations, frozenAt: frozen.frozenAt, now: frozen.frozenAt)
    }

    /// Returns the metric that a query names, or else the experiment's first primary one.
    ///
    /// - Throws: 400 if there is neither a goal nor a metric; 422 if the experiment does not measure it.
    private static func metric(
        _ query: ResultsQuery, of experiment: Experiment, _ project: Project
    ) throws(CoreError) -> MetricDefinition {
        let metrics = project.metrics(of: experiment)
        guard let key = query.metricKey ?? metrics.primary.first else {
            throw CoreError(
                .invalid, "the query parameter `goal` or `metric` is required: the experiment has no primary metric")
        }
        guard metrics.all.contains(key), let metric = project.datafile.metric(key: key) else {
            let known = metrics.all.map(\.string).joined(separator: ", ")
            throw CoreError(
                .unprocessable,
                "`metric` must be one that the experiment measures (\(known.isEmpty ? "none" : known)); got '\(key)'"
                    + Spelling.hint(for: key, among: metrics.all))
        }
        return metric
    }

    private func experiment(
        _ request: borrowing Request, _ call: Call
    ) throws(CoreError) -> (Project, Experiment) {
        guard areOfHoldouts else { return try projects.experiment(request, for: call.access) }
        let project = try projects.project(named: request.sdkKey, for: call.access)
        guard let key = request.parameter(0) else { throw CoreError(.invalid, "the key in the path must be UTF-8") }
        guard let comparison = Holdout.find(Identifier(key), in: project.datafile)?.comparison else {
            throw Holdout.unknown(key, in: project.datafile)
        }
        return (project, comparison)
    }

    /// Goals that users of the experiment reached, in the order of their names; `?limit=N`, by default 100.
    func goals(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let limit = try Request.pageLimit(request.query(knowing: ["limit"]))
        let id = try experiment(request, call).1.id
        let goals = try await store.read(.goals(experimentID: id, limit: limit))
        return .json(["goals": .array(goals.map { .string($0.string) })])
    }

    /// Goals that a warning names.
    private static let namedGoals = 20
}

extension Experiment {
    /// When the totals to show were frozen; `nil` for the present ones.
    fileprivate func frozenAt(_ moment: ResultsQuery.Moment) -> Timestamp? {
        switch moment {
        case .ofConclusion: annotations.frozenAt
        case .live: nil
        case .frozen(let time): time
        }
    }
}

extension ProjectView {
    /// Returns the experiment that the path names by its key or id, and its project.
    func experiment(
        _ request: borrowing Request, for access: ProjectAccess
    ) throws(CoreError) -> (Project, Experiment) {
        let project = try project(named: request.sdkKey, for: access)
        guard let key = request.parameter(0) else { throw CoreError(.invalid, "the key in the path must be UTF-8") }
        let name = Identifier(key)
        guard let experiment = project.datafile.experiment(keyOrID: name) else {
            throw .undefinedExperiment(name, in: project.datafile)
        }
        return (project, experiment)
    }
}

extension Services {
    /// The totals of single users, if few of them may have most of the sum.
    func userTotals(
        _ name: Identifier, _ tally: ExperimentTally, of experimentID: Identifier
    ) async throws -> UserTotals? {
        try await userTotals.totals(name, tally, of: experimentID, projects, at: store.clock.now())
    }
}
