import HTTPServer

extension NativeProtocol {
    /// The routes that record events, and the routes that read records: exports, the feed and the audit log.
    static func events(_ loop: LoopServices) -> [APIRoute] {
        let services = loop.services
        let session = loop.session
        let projects = loop.projects
        let event = EventEndpoints(services: services, store: session, projects: projects)
        let audit = AuditEndpoint(store: session)
        let feed = FeedEndpoint(reader: services.feed, projects: projects)
        return [
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
        ]
    }
}
