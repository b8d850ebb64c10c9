import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/experiments/{key}/plan`: the number of users and days that an experiment needs, for one metric or for all
/// that decide it. Changes nothing.
struct SampleSizeEndpoint {
    let services: Services
    let store: any StoreSession
    let projects: ProjectView

    /// The maximum number of other experiments of the same flags whose observations are used.
    private static let otherExperiments = 20

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let (project, experiment) = try projects.experiment(request, for: call.access)
        let asked = try request.withBody { bytes throws(CoreError) in try SampleSizeRequest(JSONInput.parse(bytes)) }
        let (rule, metrics) = try await services.compute {
            let rule = SampleSizeEstimate.Rule(of: experiment, in: project)
            return (rule, try asked.metrics(rule, of: experiment, in: project))
        }
        let others: [Experiment]
        if let key = asked.source {
            guard let source = project.datafile.experiment(keyOrID: key) else {
                throw CoreError.undefinedExperiment(key, in: project.datafile, at: ["from"])
            }
            others = [source]
        } else {
            others = try await services.compute { project.others(ofFlagsWith: experiment) }
        }
        var subjects: [SampleSizeOverview.Subject] = []
        for (role, metric) in metrics {
            let own = try await observation(of: experiment, in: project, metric)
            var observations: [ResultsTotals] = []
            for other in others.prefix(Self.otherExperiments) {
                observations.append(try await observation(of: other, in: project, metric))
            }
            subjects.append(SampleSizeOverview.Subject(role, metric, own: own, others: observations))
        }
        let now = services.store.clock.now()
        return .json(
            try await services.compute { [subjects] in
                try SampleSizeOverview(asked, rule, subjects, at: now)?.json ?? .null
            })
    }

    private func observation(
        of experiment: Experiment, in project: Project, _ metric: MetricDefinition
    ) async throws -> ResultsTotals {
        let scope = ResultsScope(experiment, in: project, .live, at: services.store.clock.now())
        return try await services.resultsReader(scope, store, projects.schema).totals(of: metric)
    }
}
