import HTTPServer
import Storage

extension NativeProtocol {
    /// The routes of assignments, evaluations, and the stream of changes.
    static func decisions(_ loop: LoopServices) -> [APIRoute] {
        let services = loop.services
        let session = loop.session
        let projects = loop.projects
        let assignment = AssignmentEndpoints(store: session, projects: projects, clock: services.store.clock)
        let bucket = BucketEndpoint()
        let assign = AssignEndpoints(
            decisions: loop.decisions, projects: projects, limit: services.options.elementLimit)
        let evaluation = EvaluationEndpoint(decisions: loop.decisions, projects: projects)
        let explain = ExplainEndpoint(decisions: loop.decisions, projects: projects)
        let changes = ChangesEndpoint(feed: services.changes, projects: projects)
        let evaluationCount = EvaluationCountEndpoint(
            projects: projects, metrics: services.reportedEvaluations, uses: services.uses,
            limit: services.options.elementLimit)
        return [
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
            APIRoute(.post, "/v1/bucket", scope: .token(.read), bucket.post).atEdge,
            APIRoute(.post, "/v1/assign", scope: .token(.client), callback: assign.post).atEdge,
            APIRoute(.get, "/v1/assign", scope: .token(.client, or: .read), readsQuery: true, assign.get).atEdge,
            APIRoute(.post, "/v1/evaluations", scope: .token(.client), evaluation.post).atEdge,
            APIRoute(.post, "/v1/evaluations/counts", scope: .token(.client), evaluationCount.post).atEdge,
            APIRoute(.get, "/v1/changes", scope: .anyToken, readsQuery: true, changes.get).atEdge,
        ]
    }
}
