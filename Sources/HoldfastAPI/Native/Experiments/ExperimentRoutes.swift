import Bucketing
import HTTPServer
import HoldfastCore
import Storage

extension NativeProtocol {
    /// The routes of experiments, from a draft to a conclusion. Results have their own routes.
    static func experiments(_ loop: LoopServices) -> [APIRoute] {
        let services = loop.services
        let session = loop.session
        let projects = loop.projects
        let experiment = DefinitionEndpoints<Experiment>(services: services, store: session, projects: projects)
        let conclusion = ConclusionEndpoints(
            catalog: services.projects, projects: projects, clock: services.store.clock)
        let proposal = ProposalEndpoints(loop)
        let history = HistoryEndpoints<Experiment>(.experiments, loop)
        let preview = PreviewEndpoint(catalog: services.projects, clock: services.store.clock, projects: projects)
        let overview = OverviewEndpoint(services: services, store: session, projects: projects)
        let plan = SampleSizeEndpoint(services: services, store: session, projects: projects)
        let experimentImport = ImportEndpoint(services: services, store: session, projects: projects)
        return [
            APIRoute(.get, "/v1/overview", scope: .token(.read), respondsLater: true, readsQuery: true, overview.get),
            APIRoute(.get, "/v1/experiments", scope: .token(.read, or: .definitions), readsQuery: true, experiment.list)
                .atEdge,
            APIRoute(.get, "/v1/experiments/{key}", scope: .token(.read, or: .definitions), experiment.get).atEdge,
            APIRoute(
                .put, "/v1/experiments/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(experiment.put)
            ).withNewestDefinitions,
            APIRoute(
                .delete, "/v1/experiments/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(experiment.delete)
            ).withNewestDefinitions,
            APIRoute(
                .post, "/v1/experiments/{key}/conclude", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(conclusion.conclude)
            ).withNewestDefinitions,
            APIRoute(
                .post, "/v1/experiments/{key}/reopen", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(conclusion.reopen)
            ).withNewestDefinitions,
            APIRoute(
                .post, "/v1/experiments/{key}/ramp", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(conclusion.controlRamp)
            ).withNewestDefinitions,
            APIRoute(
                .post, "/v1/experiments/{key}/preview", scope: .token(.admin, or: .definitions), isConditional: true,
                readsQuery: true, preview.postExperiment
            ).withNewestDefinitions,
            APIRoute(.post, "/v1/experiments/{key}/import", scope: .token(.admin), experimentImport.post)
                .withNewestDefinitions,
            APIRoute(.post, "/v1/experiments/{key}/plan", scope: .token(.read), plan.post),
        ] + history.routes
    }
}
