import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import Storage

/// Holdfast's own REST API. `GET /openapi.json` describes it; a test compares the description with these routes.
struct NativeProtocol: WireProtocol {
    let routes: [APIRoute]

    init(_ loop: LoopServices) {
        let services = loop.services
        let (session, projects) = (loop.session, loop.projects)
        let merger = ProfileMerger(store: session, services: services)
        let profile = ProfileEndpoints(
            store: session, events: services.events,
            knownExposures: services.knownExposures, catalog: services.projects, merger: merger)
        let assignment = AssignmentEndpoints(store: session, projects: projects, clock: services.store.clock)
        let lookup = LookupEndpoint(reader: session, limit: services.options.elementLimit)
        let transfer = TransferEndpoints(services: services, store: session)
        let attribute = AttributeEndpoints(store: session, catalog: services.projects, projects: projects)
        let userAttributes = UserAttributeEndpoints(services: services, store: session, projects: projects)
        let sticky = StickyDocumentEndpoints(store: session)
        let stickyValues = StickyValueEndpoints(store: session)
        let segment = SegmentEndpoints(services: services, store: session, projects: projects)
        let bucket = BucketEndpoint()
        let assign = AssignEndpoints(
            decisions: loop.decisions, projects: projects, limit: services.options.elementLimit)
        let evaluation = EvaluationEndpoint(decisions: loop.decisions, projects: projects)
        let explain = ExplainEndpoint(decisions: loop.decisions, projects: projects)
        let changes = ChangesEndpoint(feed: services.changes, projects: projects)
        let project = ProjectEndpoints(catalog: services.projects, projects: projects)
        let datafile = DatafileEndpoints(
            catalog: services.projects, store: session, projects: projects, clock: services.store.clock)
        let experiment = DefinitionEndpoints<Experiment>(services: services, store: session, projects: projects)
        let flag = DefinitionEndpoints<Flag>(services: services, store: session, projects: projects)
        let metric = DefinitionEndpoints<MetricDefinition>(services: services, store: session, projects: projects)
        let holdout = DefinitionEndpoints<Holdout>(services: services, store: session, projects: projects)
        let definitions = DefinitionSetEndpoints(
            catalog: services.projects, projects: projects, clock: services.store.clock)
        let conclusion = ConclusionEndpoints(
            catalog: services.projects, projects: projects, clock: services.store.clock)
        let proposal = ProposalEndpoints(
            store: session, projects: projects, requests: loop.requests, clock: services.store.clock)
        let preview = PreviewEndpoint(catalog: services.projects, projects: projects)
        let results = ResultsEndpoints(services: services, store: session, projects: projects)
        let holdoutResults = ResultsEndpoints(
            services: services, store: session, projects: projects, areOfHoldouts: true)
        let overview = OverviewEndpoint(services: services, store: session, projects: projects)
        let plan = PlanEndpoint(services: services, store: session, projects: projects)
        let experimentImport = ImportEndpoint(services: services, store: session, projects: projects)
        let event = EventEndpoints(services: services, store: session, projects: projects)
        let userEvents = UserEventEndpoints(store: session)
        let audience = AudienceEndpoint(services: services, store: session, projects: projects)
        let login = LoginEndpoint(merger: merger, limit: services.options.elementLimit)
        let evaluationCount = EvaluationCountEndpoint(
            projects: projects, metrics: services.reportedEvaluations, uses: services.uses,
            limit: services.options.elementLimit)
        let audit = AuditEndpoint(store: session)
        let tokens = TokensEndpoint(control: services.access, isEdge: services.upstream != nil)
        let feed = FeedEndpoint(reader: services.feed, projects: projects)
        let knownUsers = KnownUsersEndpoint(store: session)
        let personal = PersonalExportEndpoint(store: session, projects: projects, page: services.options.exportPage)

        routes = [
            APIRoute(
                .get, "/v1/profiles", scope: .unbound(.admin, or: .export), readsQuery: true, transfer.exportProfiles),
            APIRoute(.post, "/v1/profiles", scope: .token(.write), readsQuery: true, streamed: transfer.importProfiles),
            APIRoute(.post, "/v1/profiles/lookup", scope: .profile(.read), lookup.post).atEdge,
            APIRoute(.get, "/v1/profiles/{user_id}", scope: .profile(.read), readsQuery: true, callback: profile.get)
                .atEdge,
            APIRoute(.put, "/v1/profiles/{user_id}", scope: .token(.write), isConditional: true, callback: profile.put),
            APIRoute(
                .patch, "/v1/profiles/{user_id}", scope: .profile(.write), isConditional: true, readsQuery: true,
                callback: profile.patch),
            APIRoute(
                .delete, "/v1/profiles/{user_id}", scope: .unbound(.admin), isConditional: true, readsQuery: true,
                profile.delete),
            APIRoute(
                .get, "/v1/profiles/{user_id}/export", scope: .unbound(.admin), respondsLater: true, personal.get),
            APIRoute(.post, "/v1/profiles/{user_id}/merge", scope: .token(.write), profile.merge),
            APIRoute(.post, "/v1/logins", scope: .token(.client), login.post),
            APIRoute(
                .get, "/v1/profiles/{user_id}/evaluations", scope: .token(.read), respondsLater: true, readsQuery: true,
                evaluation.get),
            APIRoute(.get, "/v1/profiles/{user_id}/experiments/{experiment}", scope: .token(.read), assignment.get)
                .atEdge,
            APIRoute(
                .put, "/v1/profiles/{user_id}/experiments/{experiment}", scope: .token(.admin), isConditional: true,
                readsQuery: true, assignment.put),
            APIRoute(
                .delete, "/v1/profiles/{user_id}/experiments/{experiment}", scope: .token(.write), isConditional: true,
                assignment.delete),
            APIRoute(
                .get, "/v1/profiles/{user_id}/experiments/{experiment}/explain", scope: .token(.read),
                respondsLater: true, readsQuery: true, explain.get
            ).atEdge,

            APIRoute(
                .get, "/v1/profiles/{user_id}/exposures", scope: .token(.read), respondsLater: true, readsQuery: true,
                userEvents.exposures),
            APIRoute(
                .get, "/v1/profiles/{user_id}/events", scope: .token(.read), respondsLater: true, readsQuery: true,
                userEvents.events),

            APIRoute(.get, "/v1/sticky/{attribute}/{value}", scope: .token(.read), sticky.get),
            APIRoute(
                .patch, "/v1/sticky/{attribute}/{value}", scope: .token(.write), readsQuery: true, sticky.patch),
            APIRoute(.delete, "/v1/sticky/{attribute}/{value}", scope: .unbound(.admin), sticky.delete),
            APIRoute(.post, "/v1/sticky/lookup", scope: .token(.read), sticky.postLookup),
            APIRoute(.get, "/v1/sticky-values/{key}", scope: .token(.read), stickyValues.get),
            APIRoute(.patch, "/v1/sticky-values/{key}", scope: .token(.write), stickyValues.patch),
            APIRoute(.delete, "/v1/sticky-values/{key}", scope: .unbound(.admin), stickyValues.delete),

            APIRoute(.get, "/v1/attributes", scope: .token(.read, or: .definitions), readsQuery: true, attribute.list)
                .atEdge,
            APIRoute(.get, "/v1/attributes/{name}", scope: .token(.read, or: .definitions), attribute.get).atEdge,
            APIRoute(.put, "/v1/attributes/{name}", scope: .unbound(.admin), attribute.put),
            APIRoute(.delete, "/v1/attributes/{name}", scope: .unbound(.admin), attribute.delete),
            APIRoute(.get, "/v1/profiles/{user_id}/attributes", scope: .token(.attributes), userAttributes.get).atEdge,
            APIRoute(.patch, "/v1/profiles/{user_id}/attributes", scope: .token(.client), userAttributes.patch),
            APIRoute(
                .delete, "/v1/profiles/{user_id}/attributes", scope: .token(.client), readsQuery: true,
                userAttributes.delete),
            APIRoute(.post, "/v1/profiles/attributes", scope: .token(.client), streamed: userAttributes.importLines),
            APIRoute(.get, "/v1/segments", scope: .token(.read, or: .definitions), readsQuery: true, segment.list)
                .atEdge,
            APIRoute(
                .get, "/v1/segments/{name}", scope: .token(.read, or: .definitions), respondsLater: true,
                readsQuery: true, segment.get),
            APIRoute(
                .put, "/v1/segments/{name}", scope: .unbound(.admin), readsQuery: true, proposal.holding(segment.put)),
            APIRoute(.delete, "/v1/segments/{name}", scope: .unbound(.admin), segment.delete),
            APIRoute(.get, "/v1/segments/{name}/users", scope: .token(.attributes), readsQuery: true, segment.users),
            APIRoute(.post, "/v1/audiences/size", scope: .token(.admin), respondsLater: true, audience.size),

            APIRoute(.post, "/v1/bucket", scope: .token(.read), bucket.post).atEdge,
            APIRoute(.post, "/v1/assign", scope: .token(.client), callback: assign.post).atEdge,
            APIRoute(.get, "/v1/assign", scope: .token(.client, or: .read), readsQuery: true, assign.get).atEdge,
            APIRoute(.post, "/v1/evaluations", scope: .token(.client), evaluation.post).atEdge,
            APIRoute(.post, "/v1/evaluations/counts", scope: .token(.client), evaluationCount.post).atEdge,
            APIRoute(.get, "/v1/changes", scope: .anyToken, readsQuery: true, changes.get).atEdge,
            APIRoute(.get, "/v1/projects", scope: .token(.read, or: .definitions), readsQuery: true, project.list)
                .atEdge,
            APIRoute(.get, "/v1/projects/{sdk_key}", scope: .token(.read, or: .definitions), project.get).atEdge,
            APIRoute(.put, "/v1/projects/{sdk_key}", scope: .token(.admin), proposal.holding(project.put)),
            APIRoute(.delete, "/v1/projects/{sdk_key}", scope: .token(.admin), project.delete),
            APIRoute(
                .put, "/v1/datafile", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(datafile.put)),
            APIRoute(
                .get, "/v1/datafile/history", scope: .token(.read, or: .definitions), respondsLater: true,
                readsQuery: true,
                datafile.history),
            APIRoute(
                .get, "/v1/datafile/history/{version}", scope: .token(.admin), respondsLater: true, datafile.version),
            APIRoute(.get, "/v1/overview", scope: .token(.read), respondsLater: true, readsQuery: true, overview.get),
            APIRoute(.get, "/v1/experiments", scope: .token(.read, or: .definitions), readsQuery: true, experiment.list)
                .atEdge,
            APIRoute(.get, "/v1/experiments/{key}", scope: .token(.read, or: .definitions), experiment.get).atEdge,
            APIRoute(
                .put, "/v1/experiments/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(experiment.put)),
            APIRoute(
                .delete, "/v1/experiments/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(experiment.delete)),
            APIRoute(
                .post, "/v1/experiments/{key}/conclude", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(conclusion.conclude)),
            APIRoute(
                .post, "/v1/experiments/{key}/reopen", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(conclusion.reopen)),
            APIRoute(
                .post, "/v1/experiments/{key}/ramp", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(conclusion.controlRamp)),
            APIRoute(
                .post, "/v1/experiments/{key}/preview", scope: .token(.admin, or: .definitions), isConditional: true,
                readsQuery: true,
                preview.postExperiment),
            APIRoute(.post, "/v1/experiments/{key}/import", scope: .token(.admin), experimentImport.post),
            APIRoute(.post, "/v1/experiments/{key}/plan", scope: .token(.read), plan.post),
            APIRoute(
                .get, "/v1/experiments/{key}/results", scope: .token(.read), respondsLater: true, readsQuery: true,
                results.get),
            APIRoute(
                .get, "/v1/experiments/{key}/results.svg", scope: .token(.read), respondsLater: true, readsQuery: true,
                results.getChart),
            APIRoute(
                .get, "/v1/experiments/{key}/report.html", scope: .token(.read), respondsLater: true, readsQuery: true,
                results.getReport),
            APIRoute(
                .get, "/v1/experiments/{key}/results/series", scope: .token(.read), respondsLater: true,
                readsQuery: true, results.getSeries),
            APIRoute(
                .get, "/v1/experiments/{key}/goals", scope: .token(.read), respondsLater: true, readsQuery: true,
                results.goals),

            APIRoute(.get, "/v1/flags", scope: .token(.read, or: .definitions), readsQuery: true, flag.list),
            APIRoute(.get, "/v1/flags/{key}", scope: .token(.read, or: .definitions), flag.get),
            APIRoute(
                .put, "/v1/flags/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(flag.put)),
            APIRoute(
                .delete, "/v1/flags/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(flag.delete)),
            APIRoute(
                .post, "/v1/flags/{key}/preview", scope: .token(.admin, or: .definitions), isConditional: true,
                readsQuery: true,
                preview.postFlag),

            APIRoute(.get, "/v1/metrics", scope: .token(.read, or: .definitions), readsQuery: true, metric.list).atEdge,
            APIRoute(.get, "/v1/metrics/{key}", scope: .token(.read, or: .definitions), metric.get).atEdge,
            APIRoute(
                .put, "/v1/metrics/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(metric.put)),
            APIRoute(
                .delete, "/v1/metrics/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(metric.delete)),
            APIRoute(.get, "/v1/holdouts", scope: .token(.read, or: .definitions), readsQuery: true, holdout.list)
                .atEdge,
            APIRoute(.get, "/v1/holdouts/{key}", scope: .token(.read, or: .definitions), holdout.get).atEdge,
            APIRoute(
                .put, "/v1/holdouts/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(holdout.put)),
            APIRoute(
                .delete, "/v1/holdouts/{key}", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(holdout.delete)),
            APIRoute(
                .get, "/v1/holdouts/{key}/results", scope: .token(.read), respondsLater: true, readsQuery: true,
                holdoutResults.get),
            APIRoute(
                .get, "/v1/holdouts/{key}/results.svg", scope: .token(.read), respondsLater: true, readsQuery: true,
                holdoutResults.getChart),

            APIRoute(
                .get, "/v1/definitions", scope: .token(.read, or: .definitions), respondsLater: true, definitions.get
            ).atEdge,
            APIRoute(.get, "/v1/definitions/schema.json", scope: .none, DefinitionSchema.get),
            APIRoute(
                .put, "/v1/definitions", scope: .token(.admin), isConditional: true, readsQuery: true,
                proposal.holding(definitions.put)),
            APIRoute(
                .post, "/v1/definitions/preview", scope: .token(.admin, or: .definitions), isConditional: true,
                readsQuery: true,
                definitions.preview),

            APIRoute(.get, "/v1/proposals", scope: .token(.admin), readsQuery: true, proposal.list),
            APIRoute(.get, "/v1/proposals/{id}", scope: .token(.admin), proposal.get),
            APIRoute(.post, "/v1/proposals/{id}/approve", scope: .token(.admin), proposal.approve),
            APIRoute(.post, "/v1/proposals/{id}/reject", scope: .token(.admin), proposal.reject),

            APIRoute(.post, "/v1/exposures", scope: .token(.client), event.postExposures).atEdge,
            APIRoute(
                .get, "/v1/exposures", scope: .unbound(.admin, or: .export), readsQuery: true, event.exportExposures),
            APIRoute(.post, "/v1/events", scope: .token(.client), event.postEvents).atEdge,
            APIRoute(.get, "/v1/events", scope: .unbound(.admin, or: .export), readsQuery: true, event.exportEvents),
            APIRoute(
                .get, "/v1/feed", scope: .unbound(.admin, or: .export), respondsLater: true, readsQuery: true, feed.get),
            APIRoute(
                .get, "/v1/audit", scope: .unbound(.admin, or: .export), respondsLater: true, readsQuery: true,
                audit.get),
            APIRoute(.get, "/v1/tokens", scope: .unbound(.admin), tokens.get).atEdge,
            APIRoute(.get, "/v1/whoami", scope: .anyToken, tokens.whoami).atEdge,
            APIRoute(
                .get, "/v1/users", scope: .unbound(.admin, or: .export), respondsLater: true, readsQuery: true,
                knownUsers.list),
            APIRoute(
                .get, "/v1/users/recent", scope: .unbound(.admin, or: .export), respondsLater: true, readsQuery: true,
                knownUsers.recent),
        ]
    }
}
