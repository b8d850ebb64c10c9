import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/experiments/{key}/results`: the results of an experiment as JSON, CSV, a chart, a report or a series by day;
/// and `/v1/holdouts/{key}/results`, which compares the users who are not held out with those who are.
///
/// Results are computed off the event loops, from tallies that the store keeps for each variation and goal. Only some
/// queries, such as those with a filter, read the records of single users.
struct ResultsEndpoints {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView
    /// Whether the key in the path names a holdout instead of an experiment.
    var areOfHoldouts = false

    /// Responds with the results as JSON, or with `?format=csv` as CSV. Without a goal and a metric, the JSON has all
    /// metrics of the experiment's plan, with one verdict.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let known = ResultsQuery.parameters.filter {
            !areOfHoldouts || !["breakdown", "attribute", "value"].contains($0)
        }
        let parameters = try request.query(knowing: known)
        let query = try ResultsQuery(parameters)
        let scope = try scope(query, request, call)
        let isOfPlan =
            query.goal == nil && query.metricKey == nil && query.breakdown == nil && query.format == .json
        if isOfPlan, let plan = try await plan(scope) {
            if let unsuitable = parameters.keys.sorted().first(where: { !ResultsQuery.planParameters.contains($0) }) {
                throw CoreError(
                    .invalid,
                    "`\(unsuitable)` must be left out without `goal` and `metric`: the plan's alpha holds for all")
            }
            let totals = try await reader(scope).totals(of: plan)
            return .json(
                try await services.compute { try totals.results()?.json(plan: plan.description).encoded() ?? [] })
        }
        let totals = try await reader(scope).totals()
        switch query.format {
        case .json: return .json(try await services.compute { try totals.results().json })
        case .csv: return .csv(try await services.compute { Array(try totals.results().csv.utf8) })
        }
    }

    /// Responds with a chart of the lifts and their intervals.
    func getChart(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let known = ResultsQuery.parameters.filter { !["format", "by", "breakdown"].contains($0) }
        let query = try ResultsQuery(request.query(knowing: known))
        let totals = try await reader(scope(query, request, call)).totals()
        let bytes = try await services.compute { Array(ResultsChart(try totals.results()).svg.utf8) }
        return Response(.ok, contentType: "image/svg+xml", body: .bytes(bytes))
    }

    /// Responds with an ``ExperimentReport`` of all metrics of the plan, or of one goal.
    func getReport(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let known = ["goal"] + ResultsQuery.planParameters.filter { $0 != "format" }
        let query = try ResultsQuery(request.query(knowing: known))
        let scope = try scope(query, request, call)
        let now = services.store.clock.now()
        let author = call.author(request).name
        // 128 random bits, so that nobody can guess the nonce.
        let nonce = (0..<2).map { _ in String(UInt64.random(in: .min ... .max), radix: 36) }.joined()
        let description = scope.experiment.description(in: scope.project).object ?? JSONObject()
        let bytes: [UInt8]
        if query.goal == nil, let plan = try await plan(scope) {
            let totals = try await reader(scope).totals(of: plan)
            bytes = try await services.compute {
                guard let results = try totals.results() else { return [] }
                let report = ExperimentReport(
                    results, of: description, series: try totals.first?.series(), madeAt: now, by: author)
                return Array(report.page(nonce: nonce).utf8)
            }
        } else {
            let totals = try await reader(scope).totals()
            bytes = try await services.compute {
                let report = ExperimentReport(
                    try totals.results(), of: description, series: try totals.series(), madeAt: now, by: author)
                return Array(report.page(nonce: nonce).utf8)
            }
        }
        return .report(bytes, nonce: nonce)
    }

    /// Responds with the results by day of enrollment.
    func getSeries(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let known = ResultsQuery.parameters.filter { !["by", "breakdown", "mde"].contains($0) }
        let query = try ResultsQuery(request.query(knowing: known))
        let totals = try await reader(scope(query, request, call)).totals()
        switch query.format {
        case .json: return .json(try await services.compute { try totals.series().json.encoded() })
        case .csv: return .csv(try await services.compute { Array(try totals.series().csv.utf8) })
        }
    }

    /// Responds with the goals that users of the experiment reached, in the order of their names. The default of
    /// `?limit=N` is 100.
    func goals(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let limit = try Request.pageLimit(request.query(knowing: ["limit"]))
        let (_, experiment) = try experiment(request, call)
        let goals = try await store.read(.goals(experimentID: experiment.id, limit: limit))
        return .json(["goals": .array(goals.map { .string($0.string) })])
    }

    // MARK: The experiment

    /// Returns a reader of the results in a scope.
    private func reader(_ scope: ResultsScope) -> ResultsReader {
        services.resultsReader(scope, store, projects.schema)
    }

    /// Returns the metrics of the experiment's plan; `nil` if it has none.
    private func plan(_ scope: ResultsScope) async throws -> MeasuredPlan? {
        try await services.compute { scope.project.plan(of: scope.experiment) }
    }

    /// Returns the experiment, the project and the query as the scope of the results to read.
    private func scope(
        _ query: ResultsQuery, _ request: borrowing Request, _ call: Call
    ) throws(CoreError) -> ResultsScope {
        let (project, experiment) = try experiment(request, call)
        return ResultsScope(experiment, in: project, query, at: services.store.clock.now())
    }

    /// Returns the project and the experiment in the path. For a holdout, this is its comparison: an experiment whose
    /// variations are the users who are held out, and those who are not.
    private func experiment(
        _ request: borrowing Request, _ call: Call
    ) throws(CoreError) -> (Project, Experiment) {
        guard areOfHoldouts else { return try projects.experiment(request, for: call.access) }
        let project = try projects.project(named: request.sdkKey, for: call.access)
        guard let key = request.parameter(0) else { throw CoreError(.invalid, "the key in the path must be UTF-8") }
        guard let comparison = Holdout.find(Identifier(key), in: project.compiled)?.comparison else {
            throw Holdout.unknown(key, in: project.compiled)
        }
        return (project, comparison)
    }
}

extension Services {
    /// Returns a reader of results, which may read the records of single users if a query needs them.
    func resultsReader(
        _ scope: ResultsScope, _ session: any StoreSession, _ schema: AttributeSchema
    ) -> ResultsReader {
        ResultsReader(scope, session, users: .init(projects, schema, userTotals))
    }
}

extension Response {
    fileprivate static func csv(_ bytes: [UInt8]) -> Response {
        Response(.ok, contentType: "text/csv; charset=utf-8", body: .bytes(bytes))
    }

    /// Returns the response with a report, whose only style sheet has the nonce. A browser runs no script in the
    /// report, and does not store it.
    fileprivate static func report(_ bytes: [UInt8], nonce: String) -> Response {
        var response = Response(.ok, contentType: "text/html; charset=utf-8", body: .bytes(bytes))
        response.fields = [
            ("Content-Security-Policy", "\(ExperimentReport.policy(nonce: nonce)); sandbox; frame-ancestors 'none'"),
            ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store"),
        ]
        return response
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
