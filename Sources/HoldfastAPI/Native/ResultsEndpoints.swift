import Bucketing
import Dispatch
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/experiments/{key}/results`: the results of an experiment. Read from stored tallies, off the event loops.
struct ResultsEndpoints {
    let services: Services
    let store: any EventStore
    let projects: ProjectView

    /// As JSON, or with `?format=csv` for a spreadsheet.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
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
    func getChart(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        try respond(request, knowing: ResultsQuery.parameters.filter { !["format", "by"].contains($0) }, call) {
            results in
            let chart = ResultsChart(results).svg
            call.respond(Response(.ok, contentType: "image/svg+xml", body: .bytes(Array(chart.utf8))))
        }
    }

    private func respond(
        _ request: borrowing Request, knowing parameters: [String], _ call: Call,
        _ send: @escaping @Sendable (ExperimentResults) -> Void
    ) throws(CoreError) {
        let query = try ResultsQuery(try request.query(knowing: parameters))
        let (project, experiment) = try experiment(request)
        read(experiment, query, call) { [services] tally, others in
            services.computations.async {
                call.attempt {
                    send(
                        try ExperimentResults(
                            experiment, sdkKey: project.sdkKey, query, tally, otherGoals: others,
                            formerKeys: project.retiredVariations(of: experiment), now: services.store.clock.now()))
                }
            }
        }
    }

    private func experiment(
        _ request: borrowing Request
    ) throws(CoreError) -> (Project, Experiment) {
        let project = try projects.project(named: request.sdkKey)
        guard let key = request.parameter(0) else { throw CoreError(.invalid, "the key in the path must be UTF-8") }
        let name = Identifier(key)
        guard let experiment = project.datafile.experiment(keyOrID: name) else {
            throw .undefinedExperiment(name, in: project.datafile)
        }
        return (project, experiment)
    }

    /// Goals that users of the experiment reached, in the order of their names; `?limit=N`, by default 100.
    func goals(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let limit = try Request.pageLimit(request.query(knowing: ["limit"]))
        store.goals(experimentID: try experiment(request).1.id, limit: limit) { result in
            switch result {
            case .success(let goals):
                let response: JSONValue = ["goals": .array(goals.map { .string($0.string) })]
                call.respond(json: response.encoded())
            case .failure(let error): call.fail(error)
            }
        }
    }

    /// Goals that a warning names.
    private static let namedGoals = 20

    /// Reads the tallies and, if nobody has reached the goal, which other goals there are.
    private func read(
        _ experiment: Experiment, _ query: ResultsQuery, _ call: Call,
        _ compute: @escaping (_ tally: ExperimentTally, _ otherGoals: [Identifier]) -> Void
    ) {
        store.tally(experimentID: experiment.id, goal: query.goal) { [store] result in
            switch result {
            case .success(let tally) where tally.variations.allSatisfy({ $0.goal.events == 0 }):
                store.goals(experimentID: experiment.id, limit: Self.namedGoals) { result in
                    switch result {
                    case .success(let others): compute(tally, others)
                    case .failure(let error): call.fail(error)
                    }
                }
            case .success(let tally): compute(tally, [])
            case .failure(let error): call.fail(error)
            }
        }
    }
}
