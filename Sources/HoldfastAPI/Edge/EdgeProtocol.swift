import HTTPServer
import HoldfastCore

/// What other servers that follow this one as edges ask for: its users and definitions as they are stored, and the changes
/// and events of their clients. A token of the scope `edge` admits to nothing else.
struct EdgeProtocol: WireProtocol {
    let pathPrefixes = ["/edge/"]
    let routes: [APIRoute]

    init(_ loop: LoopServices) {
        let services = loop.services
        // Decisions need no exposures and goals.
        let feed = FeedEndpoint(
            reader: services.feed, projects: loop.projects, kinds: [.assignment, .attributes, .merge, .erasure],
            records: loop.session)
        let users = EdgeUsersEndpoints(store: loop.session, limit: services.options.elementLimit)
        let definitions = EdgeDefinitionsEndpoint(services: services, store: loop.session)
        let changes = EdgeChangesEndpoint(store: loop.session, feed: feed, limit: services.options.elementLimit)
        let events = EdgeEventsEndpoint(
            services: services, store: loop.session, feed: feed, limit: services.options.elementLimit)
        routes = [
            APIRoute(.get, "/edge/v1/feed", scope: .unbound(.edge), respondsLater: true, readsQuery: true, feed.get),
            APIRoute(.get, "/edge/v1/users", scope: .unbound(.edge), readsQuery: true, users.list),
            APIRoute(.post, "/edge/v1/lookup", scope: .unbound(.edge), users.lookup),
            APIRoute(
                .get, "/edge/v1/definitions", scope: .unbound(.edge), respondsLater: true, readsQuery: true,
                definitions.get),
            APIRoute(.post, "/edge/v1/changes", scope: .unbound(.edge), changes.post),
            APIRoute(.post, "/edge/v1/events", scope: .unbound(.edge), events.post),
        ]
    }
}
