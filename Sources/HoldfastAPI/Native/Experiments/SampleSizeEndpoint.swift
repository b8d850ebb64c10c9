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

    /// The maximum number of other experiments with the same flags from whose results the size is estimated.
    private static let otherExperiments = 20

    /// Responds with the sample size for each metric.
    ///
    /// The size is estimated from the results of the experiment itself and of other experiments, because an experiment
    /// that has not begun has no results. The others are the experiment that the body names; if it names none, those
    /// with the same flags.
    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let (project, experiment) = try projects.experiment(request, for: call.access)
        let sizeRequest = try request.withBody { bytes throws(CoreError) in
            try SampleSizeRequest(JSONInput.parse(bytes))
        }
        let (rule, metrics) = try await services.compute {
            let rule = SampleSizeEstimate.Rule(of: experiment, in: project)
            return (rule, try sizeRequest.metrics(rule, of: experiment, in: project))
        }
        let others: [Experiment]
        if let key = sizeRequest.source {
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
                try SampleSizeOverview(sizeRequest, rule, subjects, at: now)?.json ?? .null
            })
    }

    /// Reads the totals of a metric in an experiment.
    private func observation(
        of experiment: Experiment, in project: Project, _ metric: MetricDefinition
    ) async throws -> ResultsTotals {
        let scope = ResultsScope(experiment, in: project, .live, at: services.store.clock.now())
        return try await services.resultsReader(scope, store, projects.schema).totals(of: metric)
    }
}
