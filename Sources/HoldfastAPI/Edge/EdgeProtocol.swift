import HTTPServer
import HoldfastCore

/// The protocol for edges. An edge is a server that keeps a copy of this server's users and definitions, so that it can
/// serve clients nearby, even while this server, its upstream, does not respond. It reads users, definitions and their
/// changes, and sends changes and events of its clients. A token of scope `edge` admits only to these routes.
struct EdgeProtocol: WireProtocol {
    let pathPrefixes = ["/edge"]
    let routes: [APIRoute]

    /// The maximum number of changes, events or users in a request, and of bytes in its body. Edges send less. The
    /// limits for clients do not apply, because an edge has already accepted the requests.
    static let mostElements = 10_000
    static let mostBytes = 16 << 20

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

    /// Returns a streamed handler that collects the body, which may be longer than the bodies of clients, and calls a
    /// function with the whole body.
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
    /// The bytes received so far; `nil` once the body is too large or the client has disconnected.
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
