import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import Storage

extension NativeProtocol {
    /// The routes of projects, flags, metrics and holdouts, and of definitions as a whole. Experiments have their own
    /// routes.
    static func definitions(_ loop: LoopServices) -> [APIRoute] {
        let services = loop.services
        let session = loop.session
        let projects = loop.projects
        let project = ProjectEndpoints(catalog: services.projects, projects: projects)
        let datafile = DatafileEndpoints(
            catalog: services.projects, store: session, projects: projects, clock: services.store.clock)
        let flag = DefinitionEndpoints<Flag>(services: services, store: session, projects: projects)
        let metric = DefinitionEndpoints<MetricDefinition>(services: services, store: session, projects: projects)
        let holdout = DefinitionEndpoints<Holdout>(services: services, store: session, projects: projects)
        let definitions = DefinitionSetEndpoints(services: services, store: session, projects: projects)
        let proposal = ProposalEndpoints(loop)
        let preview = PreviewEndpoint(catalog: services.projects, clock: services.store.clock, projects: projects)
        return [
            APIRoute(.get, "/v1/projects", scope: .token(.read, or: .definitions), readsQuery: true, project.list)
                .atEdge,
            APIRoute(.get, "/v1/projects/{sdk_key}", scope: .token(.read, or: .definitions), project.get).atEdge,
            APIRoute(.put, "/v1/projects/{sdk_key}", scope: .token(.admin), proposal.holding(project.put))
                .withNewestDefinitions,
            APIRoute(.delete, "/v1/projects/{sdk_key}", scope: .token(.admin), project.delete).withNewestDefinitions,
            APIRoute(
                .put, "/v1/datafile", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(datafile.put)
            ).withNewestDefinitions,
            APIRoute(
                .get, "/v1/datafile/history", scope: .token(.read, or: .definitions), respondsLater: true,
                readsQuery: true, datafile.history),
            APIRoute(
                .get, "/v1/datafile/history/{version}", scope: .token(.admin), respondsLater: true, datafile.version),
            APIRoute(.get, "/v1/flags", scope: .token(.read, or: .definitions), readsQuery: true, flag.list),
            APIRoute(.get, "/v1/flags/{key}", scope: .token(.read, or: .definitions), flag.get),
            APIRoute(
                .put, "/v1/flags/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(flag.put)
            ).withNewestDefinitions,
            APIRoute(
                .delete, "/v1/flags/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(flag.delete)
            ).withNewestDefinitions,
            APIRoute(
                .post, "/v1/flags/{key}/preview", scope: .token(.admin, or: .definitions), isConditional: true,
                readsQuery: true, preview.postFlag
            ).withNewestDefinitions,
            APIRoute(.get, "/v1/metrics", scope: .token(.read, or: .definitions), readsQuery: true, metric.list).atEdge,
            APIRoute(.get, "/v1/metrics/{key}", scope: .token(.read, or: .definitions), metric.get).atEdge,
            APIRoute(
                .put, "/v1/metrics/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(metric.put)
            ).withNewestDefinitions,
            APIRoute(
                .delete, "/v1/metrics/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(metric.delete)
            ).withNewestDefinitions,
            APIRoute(.get, "/v1/holdouts", scope: .token(.read, or: .definitions), readsQuery: true, holdout.list)
                .atEdge,
            APIRoute(.get, "/v1/holdouts/{key}", scope: .token(.read, or: .definitions), holdout.get).atEdge,
            APIRoute(
                .put, "/v1/holdouts/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(holdout.put)
            ).withNewestDefinitions,
            APIRoute(
                .delete, "/v1/holdouts/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(holdout.delete)
            ).withNewestDefinitions,
            APIRoute(
                .get, "/v1/definitions", scope: .token(.read, or: .definitions), respondsLater: true, definitions.get
            ).atEdge,
            APIRoute(.get, "/v1/definitions/schema.json", scope: .none, DefinitionSchema.get),
            APIRoute(
                .put, "/v1/definitions", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(definitions.put)
            ).withNewestDefinitions,
            APIRoute(
                .post, "/v1/definitions/preview", scope: .token(.admin, or: .definitions), isConditional: true,
                readsQuery: true, definitions.preview
            ).withNewestDefinitions,
        ] + HistoryEndpoints<Flag>(.flags, loop).routes + HistoryEndpoints<MetricDefinition>(.metrics, loop).routes
            + HistoryEndpoints<Holdout>(.holdouts, loop).routes
    }
}
