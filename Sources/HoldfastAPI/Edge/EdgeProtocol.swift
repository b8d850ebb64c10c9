import HTTPServer
import HoldfastCore

/// The protocol for edges that follow this server: they read stored users and definitions, and send changes and events
/// of their clients. A token of scope `edge` admits only to these routes.
struct EdgeProtocol: WireProtocol {
    let pathPrefixes = ["/edge"]
    let routes: [APIRoute]

    /// The maximum number of changes, events or users in a request, and of bytes in its body. Edges send less. The
    /// limits for clients do not apply, because an edge has already accepted the requests.
    static let (mostElements, mostBytes) = (10_000, 16 << 20)

    init(_ loop: LoopServices) {
        let services = loop.services
        // Edges do not need exposures and goals, because decisions do not depend on them.
        let feed = FeedEndpoint(
            reader: services.feed, projects: loop.projects, kinds: [.assignment, .attributes, .merge, .erasure],
            records: loop.session, presence: EdgePresence(catalog: services.projects))
        let users = EdgeUsersEndpoints(store: loop.session)
        let definitions = EdgeDefinitionsEndpoint(
            services: services, store: loop.session, presence: EdgePresence(catalog: services.projects))
        let changes = EdgeChangesEndpoint(store: loop.session, feed: feed)
        let events = EdgeEventsEndpoint(services: services, store: loop.session, feed: feed)
        routes = [
            APIRoute(.get, "/edge/v1/feed", scope: .unbound(.edge), respondsLater: true, readsQuery: true, feed.get),
            APIRoute(.get, "/edge/v1/users", scope: .unbound(.edge), readsQuery: true, users.list),
            APIRoute(.post, "/edge/v1/lookup", scope: .unbound(.edge), streamed: Self.collecting(users.lookup)),
            APIRoute(
                .get, "/edge/v1/definitions", scope: .unbound(.edge), respondsLater: true, readsQuery: true,
                definitions.get),
            APIRoute(.post, "/edge/v1/changes", scope: .unbound(.edge), streamed: Self.collecting(changes.post)),
            APIRoute(.post, "/edge/v1/events", scope: .unbound(.edge), streamed: Self.collecting(events.post)),
        ]
    }

    /// Returns a handler that gets the whole body, which may be longer than the bodies of clients.
    private static func collecting(
        _ handle: @escaping ([UInt8], Call) async throws -> Response
    ) -> (borrowing Request, Call) throws -> any BodyReceiver {
        { _, call in
            CollectedBody(limit: mostBytes) { body in
                guard let body else {
                    let detail = "the body must have at most \(mostBytes >> 20) MiB"
                    return call.respond(Problem(.contentTooLarge, detail).response(on: call.pattern))
                }
                call.responder.send {
                    do {
                        return try await handle(body, call)
                    } catch {
                        return Problem(error).response(on: call.pattern)
                    }
                }
            }
        }
    }
}

/// Keeps the body of a request until it is complete. Belongs to one event loop.
final class CollectedBody: BodyReceiver {
    private var bytes: [UInt8]? = []
    private let limit: Int
    private let respond: ([UInt8]?) -> Void

    /// - Parameter respond: called once with the body; with `nil` as soon as it is too large.
    init(limit: Int, respond: @escaping ([UInt8]?) -> Void) {
        self.limit = limit
        self.respond = respond
    }

    var heldBytes: Int { bytes?.count ?? 0 }

    func received(_ piece: UnsafeRawBufferPointer) -> Bool {
        guard let count = bytes?.count else { return true }
        guard count + piece.count <= limit else {
            bytes = nil
            respond(nil)
            return true
        }
        bytes?.append(contentsOf: piece)
        return true
    }

    func ended() {
        if let bytes { respond(bytes) }
    }

    func aborted() {
        bytes = nil
    }
}
