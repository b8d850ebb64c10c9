import HTTPServer
import HoldfastCore

/// The routes that orchestrators and monitoring call.
struct OperationsRoutes: WireProtocol {
    let routes: [APIRoute]

    init(_ loop: LoopServices) {
        let operations = OperationsEndpoints(services: loop.services)
        let metrics = MetricsEndpoint(services: loop.services)
        routes = [
            APIRoute(.get, "/livez", scope: .none, isVital: true, operations.live),
            APIRoute(.get, "/readyz", scope: .none, isVital: true, operations.ready),
            APIRoute(.get, "/health", scope: .none, isVital: true, operations.health),
            APIRoute(.get, "/info", scope: .none, operations.info),
            APIRoute(.get, "/openapi.json", scope: .none, operations.openAPI),
            APIRoute(.get, "/metrics", scope: .token(.read), isVital: true, respondsLater: true, metrics.get),
        ]
    }
}
