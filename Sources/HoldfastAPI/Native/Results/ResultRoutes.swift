import HTTPServer

extension NativeProtocol {
    /// The routes of the results of experiments and holdouts.
    static func results(_ loop: LoopServices) -> [APIRoute] {
        let services = loop.services
        let session = loop.session
        let projects = loop.projects
        let results = ResultsEndpoints(services: services, store: session, projects: projects)
        let holdoutResults = ResultsEndpoints(
            services: services, store: session, projects: projects, areOfHoldouts: true)
        return [
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
            APIRoute(
                .get, "/v1/holdouts/{key}/results", scope: .token(.read), respondsLater: true, readsQuery: true,
                holdoutResults.get),
            APIRoute(
                .get, "/v1/holdouts/{key}/results.svg", scope: .token(.read), respondsLater: true, readsQuery: true,
                holdoutResults.getChart),
        ]
    }
}
