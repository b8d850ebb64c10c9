import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// The protocol for edges. An edge is a server that keeps a copy of this server's users and definitions. It serves
/// clients nearby, even while this server, its upstream, does not respond.
///
/// The edge reads users, definitions and their changes from these routes, and sends the changes and events of its
/// clients to them. A token of scope `edge` admits only to these routes.
struct EdgeProtocol: WireProtocol {
    let pathPrefixes = ["/edge"]
    let routes: [APIRoute]

    /// The maximum number of changes, events or users in a request. Edges send fewer. The limit for clients does not
    /// apply, because an edge has already accepted the requests of its clients.
    static let maximumElements = 10_000
    /// The maximum size of a body in bytes.
    static let maximumBytes = 16 << 20

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
            APIRoute(.post, "/edge/v1/lookup", scope: .unbound(.edge), streamed: Self.collecting(users.postLookup)),
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
            CollectedBody(limit: maximumBytes) { body in
                guard let body else {
                    let detail = "the body must have at most \(maximumBytes >> 20) MiB"
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
        // The rest of a body that is too large is received and dropped.
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

extension JSONObject {
    /// Returns a required array of a request.
    ///
    /// - Throws: 400 if there is no such array, or if it has more than `limit` elements.
    func elements(_ name: String, limit: Int, in place: JSONPointer = []) throws(CoreError) -> [JSONValue] {
        guard let elements = self[name]?.array else {
            throw CoreError(
                .invalid, "`\(name)` must be an array; got \(self[name]?.kind ?? "nothing")", at: place.appending(name))
        }
        guard elements.count <= limit else {
            throw CoreError(
                .invalid, "`\(name)` must have at most \(limit) elements; got \(elements.count)",
                at: place.appending(name))
        }
        return elements
    }
}
