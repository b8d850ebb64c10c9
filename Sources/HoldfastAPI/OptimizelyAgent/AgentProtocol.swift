import HTTPServer
import HoldfastCore
import Storage

/// The API of Optimizely Agent: the same paths, names, statuses and JSON. Errors are `{"error":"…"}`.
///
/// Each operation is a handler of an ``AgentRequest``, so that it can be called by a request of its own or in a batch.
struct AgentProtocol: WireProtocol {
    let routes: [APIRoute]
    let pathPrefixes: [String]

    init(_ loop: LoopServices) {
        let operations = Self.operations(loop)
        let batch = BatchEndpoint(
            operations: operations, projects: loop.projects, gate: loop.gate, forwarder: loop.forwarder)
        let notifications = AgentNotificationsEndpoint(
            notifications: loop.services.agentNotifications, feed: loop.services.changes, projects: loop.projects)
        pathPrefixes = operations.map(\.path) + ["/v1/batch", "/v1/notifications"]
        routes =
            operations.map { $0.isAnsweredByEdges ? $0.route(loop.projects).atEdge : $0.route(loop.projects) }
            + [
                APIRoute(.post, "/v1/batch", scope: .token(.client), readsQuery: true, batch.post),
                APIRoute(
                    .get, "/v1/notifications/event-stream", scope: .token(.read), readsQuery: true, notifications.get),
            ].map(\.atEdge)
    }

    /// The operations that a batch can also call.
    private static func operations(_ loop: LoopServices) -> [AgentOperation] {
        let services = loop.services
        let notifications = services.agentNotifications
        let decide = DecideEndpoint(decisions: loop.decisions, notifications: notifications)
        let activate = ActivateEndpoint(decisions: loop.decisions, notifications: notifications)
        let track = TrackEndpoint(services: services)
        let override = OverrideEndpoint(store: loop.session, catalog: services.projects)
        let profile = AgentProfileEndpoints(store: loop.session)
        let config = ConfigEndpoint()
        let datafile = AgentDatafileEndpoint()

        return [
            AgentOperation(.post, "/v1/decide", scope: .client, decide.post, callback: decide.respond),
            AgentOperation(.post, "/v1/activate", scope: .client, activate.post),
            AgentOperation(.post, "/v1/track", scope: .client, track.post),
            AgentOperation(.post, "/v1/override", scope: .admin, override.post),
            AgentOperation(.post, "/v1/lookup", scope: .read, profile.load),
            AgentOperation(.post, "/v1/save", scope: .write, profile.save),
            AgentOperation(.get, "/v1/config", scope: .read, config.get),
            AgentOperation(.get, "/v1/datafile", scope: .read, datafile.get),
            AgentOperation(.post, "/v1/send-odp-event", scope: .client) { _ in throw noDataPlatform },
        ]
    }

    private static let noDataPlatform = AgentError(
        .notImplemented, "Optimizely's data platform (ODP) is not part of this server: send events to it directly")

    func response(to error: any Error, on _: String?) -> Response {
        AgentError(error).response.httpResponse
    }
}
