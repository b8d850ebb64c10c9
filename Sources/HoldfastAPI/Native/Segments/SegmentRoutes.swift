import HTTPServer

extension NativeProtocol {
    /// The routes of attributes and segments.
    static func segments(_ loop: LoopServices) -> [APIRoute] {
        let services = loop.services
        let session = loop.session
        let projects = loop.projects
        let attribute = AttributeEndpoints(store: session, catalog: services.projects, projects: projects)
        let segment = SegmentEndpoints(services: services, store: session, projects: projects)
        let proposal = ProposalEndpoints(loop)
        let audience = AudienceEndpoint(services: services, store: session, projects: projects)
        return [
            APIRoute(.get, "/v1/attributes", scope: .token(.read, or: .definitions), readsQuery: true, attribute.list)
                .atEdge,
            APIRoute(.get, "/v1/attributes/{name}", scope: .token(.read, or: .definitions), attribute.get).atEdge,
            APIRoute(.put, "/v1/attributes/{name}", scope: .unbound(.admin), attribute.put).withNewestDefinitions,
            APIRoute(.delete, "/v1/attributes/{name}", scope: .unbound(.admin), attribute.delete).withNewestDefinitions,
            APIRoute(.get, "/v1/segments", scope: .token(.read, or: .definitions), readsQuery: true, segment.list)
                .atEdge,
            APIRoute(
                .get, "/v1/segments/{name}", scope: .token(.read, or: .definitions), respondsLater: true,
                readsQuery: true, segment.get),
            APIRoute(
                .put, "/v1/segments/{name}", scope: .unbound(.admin), readsQuery: true, proposal.holding(segment.put)
            ).withNewestDefinitions,
            APIRoute(.delete, "/v1/segments/{name}", scope: .unbound(.admin), segment.delete).withNewestDefinitions,
            APIRoute(.get, "/v1/segments/{name}/users", scope: .unbound(.attributes), readsQuery: true, segment.users),
            APIRoute(.post, "/v1/audiences/size", scope: .token(.admin), respondsLater: true, audience.size),
        ]
    }
}
