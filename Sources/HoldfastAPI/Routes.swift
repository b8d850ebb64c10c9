import HTTPServer
import Storage

/// All that Holdfast answers, for one event loop. `GET /openapi.json` describes the same routes; a test holds the two
/// together.
func apiRoutes(
    _ services: Services, _ reader: any UserReader, _ gate: AccessGate, _ loop: EventLoop
) -> [APIRoute] {
    let operations = OperationsEndpoints(services: services)
    let metrics = MetricsEndpoint(services: services)
    let profile = ProfileEndpoints(
        store: services.profiles, audit: services.audit, reader: reader, events: services.events,
        knownExposures: services.knownExposures, catalog: services.projects)
    let projects = ProjectView(services.projects)
    let assignment = AssignmentEndpoints(audit: services.audit, reader: reader, projects: projects)
    let decider = Decider(profiles: services.profiles, reader: reader, projects: projects, loop: loop)
    let assign = AssignEndpoints(
        decider: decider, projects: projects, figures: services.decisions, limit: services.options.elementLimit)
    let evaluation = EvaluationEndpoint(decider: decider, projects: projects, figures: services.decisions)
    let changes = ChangesEndpoint(feed: services.changes, projects: projects)
    let bucket = BucketEndpoint()
    let datafile = DatafileEndpoints(services: services, projects: projects)
    let experiment = ExperimentEndpoints(catalog: services.projects, projects: projects)
    let audit = AuditEndpoint(store: services.audit)
    let lookup = LookupEndpoint(reader: reader, limit: services.options.elementLimit)
    let transfer = TransferEndpoints(services: services, reader: reader)
    let attribute = AttributeEndpoints(catalog: services.projects, projects: projects)
    let userAttributes = UserAttributeEndpoints(services: services, reader: reader, projects: projects)
    let segment = SegmentEndpoints(services: services, projects: projects)
    let results = ResultsEndpoints(services: services, projects: projects)
    let event = EventEndpoints(services: services, reader: reader, projects: projects)
    let userProfileService = UserProfileServiceEndpoints(store: services.profiles, reader: reader)

    let agent = agentOperations(services, reader, projects, decider)
    let batch = BatchEndpoint(operations: agent, projects: projects, gate: gate)

    return [
        APIRoute(.get, "/livez", scope: .none, isVital: true, operations.live),
        APIRoute(.get, "/readyz", scope: .none, isVital: true, operations.ready),
        APIRoute(.get, "/health", scope: .none, isVital: true, operations.health),
        APIRoute(.get, "/info", scope: .none, operations.info),
        APIRoute(.get, "/openapi.json", scope: .none, operations.openAPI),
        APIRoute(.get, "/metrics", scope: .token(.read), isVital: true, respondsLater: true, metrics.get),

        APIRoute(.get, "/v1/profiles", scope: .token(.admin), readsQuery: true, transfer.exportProfiles),
        APIRoute(.post, "/v1/profiles", scope: .token(.write), readsQuery: true, streamed: transfer.importProfiles),
        APIRoute(.post, "/v1/profiles/lookup", scope: .token(.read), lookup.post),
        APIRoute(.get, "/v1/profiles/{user_id}", scope: .token(.read), readsQuery: true, profile.get),
        APIRoute(.put, "/v1/profiles/{user_id}", scope: .token(.write), isConditional: true, profile.put),
        APIRoute(
            .patch, "/v1/profiles/{user_id}", scope: .token(.write), isConditional: true, readsQuery: true, profile.patch),
        APIRoute(.delete, "/v1/profiles/{user_id}", scope: .token(.admin), isConditional: true, profile.delete),
        APIRoute(.get, "/v1/profiles/{user_id}/experiments/{experiment}", scope: .token(.read), assignment.get),
        APIRoute(
            .put, "/v1/profiles/{user_id}/experiments/{experiment}", scope: .token(.admin), isConditional: true,
            assignment.put),
        APIRoute(
            .delete, "/v1/profiles/{user_id}/experiments/{experiment}", scope: .token(.admin), isConditional: true,
            assignment.delete),

        APIRoute(.get, "/v1/attributes", scope: .token(.read), attribute.list),
        APIRoute(.get, "/v1/attributes/{name}", scope: .token(.read), attribute.get),
        APIRoute(.put, "/v1/attributes/{name}", scope: .token(.admin), attribute.put),
        APIRoute(.delete, "/v1/attributes/{name}", scope: .token(.admin), attribute.delete),
        APIRoute(.get, "/v1/profiles/{user_id}/attributes", scope: .token(.attributes), userAttributes.get),
        APIRoute(.patch, "/v1/profiles/{user_id}/attributes", scope: .token(.write), userAttributes.patch),
        APIRoute(
            .delete, "/v1/profiles/{user_id}/attributes", scope: .token(.write), readsQuery: true, userAttributes.delete),
        APIRoute(.post, "/v1/profiles/attributes", scope: .token(.write), streamed: userAttributes.importLines),
        APIRoute(.get, "/v1/segments", scope: .token(.read), segment.list),
        APIRoute(.get, "/v1/segments/{name}", scope: .token(.read), readsQuery: true, segment.get),
        APIRoute(.put, "/v1/segments/{name}", scope: .token(.admin), segment.put),
        APIRoute(.delete, "/v1/segments/{name}", scope: .token(.admin), segment.delete),
        APIRoute(.get, "/v1/segments/{name}/users", scope: .token(.attributes), readsQuery: true, segment.users),

        APIRoute(.post, "/v1/bucket", scope: .token(.read), bucket.post),
        APIRoute(.post, "/v1/assign", scope: .token(.write), assign.post),
        APIRoute(.get, "/v1/assign", scope: .token(.read), readsQuery: true, assign.get),
        APIRoute(.post, "/v1/evaluations", scope: .token(.write), evaluation.post),
        APIRoute(.get, "/v1/changes", scope: .token(.read), readsQuery: true, changes.get),
        APIRoute(.put, "/v1/datafile", scope: .token(.admin), isConditional: true, datafile.put),
        APIRoute(
            .get, "/v1/datafile/history", scope: .token(.read), respondsLater: true, readsQuery: true, datafile.history),
        APIRoute(.get, "/v1/experiments", scope: .token(.read), experiment.list),
        APIRoute(.get, "/v1/experiments/{key}", scope: .token(.read), experiment.get),
        APIRoute(.put, "/v1/experiments/{key}", scope: .token(.admin), isConditional: true, experiment.put),
        APIRoute(.delete, "/v1/experiments/{key}", scope: .token(.admin), isConditional: true, experiment.delete),
        APIRoute(
            .get, "/v1/experiments/{key}/results", scope: .token(.read), respondsLater: true, readsQuery: true, results.get),
        APIRoute(
            .get, "/v1/experiments/{key}/results.svg", scope: .token(.read), respondsLater: true, readsQuery: true,
            results.getChart),

        APIRoute(.post, "/v1/exposures", scope: .token(.write), event.postExposures),
        APIRoute(.get, "/v1/exposures", scope: .token(.admin), readsQuery: true, event.exportExposures),
        APIRoute(.post, "/v1/events", scope: .token(.write), event.postEvents),
        APIRoute(.get, "/v1/events", scope: .token(.admin), readsQuery: true, event.exportEvents),
        APIRoute(.get, "/v1/audit", scope: .token(.admin), respondsLater: true, readsQuery: true, audit.get),

        APIRoute(.post, "/ups/lookup", scope: .token(.read), readsQuery: true, userProfileService.postLookup),
        APIRoute(.get, "/ups/lookup", scope: .token(.read), readsQuery: true, userProfileService.getLookup),
        APIRoute(.post, "/ups/save", scope: .token(.write), readsQuery: true, userProfileService.postSave),
        APIRoute(
            .get, "/ups/save", scope: .token(.write), changesState: true, readsQuery: true, userProfileService.getSave),

        APIRoute(.post, "/v1/batch", scope: .token(.write), readsQuery: true, batch.post),
    ] + agent.map { $0.route(projects) }
}

/// What Optimizely Agent answers; a batch reaches all of it.
private func agentOperations(
    _ services: Services, _ reader: any ProfileReader, _ projects: ProjectView, _ decider: Decider
) -> [AgentOperation] {
    let exposures = Exposures(events: services.events, known: services.knownExposures)
    let decide = DecideEndpoint(decider: decider, exposures: exposures, figures: services.decisions)
    let activate = ActivateEndpoint(decider: decider, exposures: exposures, figures: services.decisions)
    let track = TrackEndpoint(events: services.events)
    let override = OverrideEndpoint(catalog: services.projects)
    let profile = AgentProfileEndpoints(store: services.profiles, reader: reader)
    let config = ConfigEndpoint()
    let datafile = AgentDatafileEndpoint()

    return [
        AgentOperation(.post, "/v1/decide", scope: .write, decide.post),
        AgentOperation(.post, "/v1/activate", scope: .write, activate.post),
        AgentOperation(.post, "/v1/track", scope: .write, track.post),
        AgentOperation(.post, "/v1/override", scope: .admin, override.post),
        AgentOperation(.post, "/v1/lookup", scope: .read, profile.lookUp),
        AgentOperation(.post, "/v1/save", scope: .write, profile.save),
        AgentOperation(.get, "/v1/config", scope: .read, config.get),
        AgentOperation(.get, "/v1/datafile", scope: .read, datafile.get),
    ]
}
