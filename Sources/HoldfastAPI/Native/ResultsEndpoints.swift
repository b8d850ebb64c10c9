import Bucketing
import Dispatch
import HTTPServer
import HoldfastCore
import Storage

/// `/v1/experiments/{key}/results`: what came of an experiment. Read from what was counted up before, away from event
/// loops.
struct ResultsEndpoints {
    let services: Services
    let projects: ProjectView

    /// As JSON, or with `?format=csv` for a spreadsheet.
    func get(_ request: borrowing Request, _ call: Call) throws(HoldfastError) {
        try respond(request, knowing: ResultsQuery.parameters, call) { results in
            switch results.query.format {
            case .json: call.respond(json: results.json)
            case .csv:
                call.respond(
                    Response(.ok, contentType: "text/csv; charset=utf-8", body: .bytes(Array(results.csv.utf8))))
            }
        }
    }

    /// A plot of the lifts with their intervals.
    func getChart(_ request: borrowing Request, _ call: Call) throws(HoldfastError) {
        try respond(request, knowing: ResultsQuery.parameters.filter { $0 != "format" }, call) { results in
            let chart = ResultsChart(results).svg
            call.respond(Response(.ok, contentType: "image/svg+xml", body: .bytes(Array(chart.utf8))))
        }
    }

    private func respond(
        _ request: borrowing Request, knowing parameters: [String], _ call: Call,
        _ send: @escaping @Sendable (ExperimentResults) -> Void
    ) throws(HoldfastError) {
        let query = try ResultsQuery(try request.query(knowing: parameters))
        let project = try projects.project(named: request.field("x-optimizely-sdk-key"))
        guard let key = request.parameter(0) else { throw HoldfastError(.invalid, "the key in the path must be UTF-8") }
        let name = Identifier(key)
        guard let experiment = project.datafile.experiment(key: name) ?? project.datafile.experiment(id: name) else {
            throw HoldfastError(.notFound, "no experiment has the key '\(key)'")
        }
        let store = services.eventStore
        services.storeReads.async {
            call.attempt { send(try Self.results(experiment, in: project, query, store)) }
        }
    }

    /// Goals that a warning names.
    private static let namedGoals = 20

    private static func results(
        _ experiment: Experiment, in project: Project, _ query: ResultsQuery, _ store: any EventStore
    ) throws -> ExperimentResults {
        let tallies = try store.tallies(experimentID: experiment.id, goal: query.goal)
        var others: [Identifier] = []
        if tallies.allSatisfy({ $0.goal.events == 0 }) {
            others = try store.goals(experimentID: experiment.id, limit: namedGoals)
        }
        return try ExperimentResults(experiment, sdkKey: project.sdkKey, query, tallies, otherGoals: others)
    }
}
