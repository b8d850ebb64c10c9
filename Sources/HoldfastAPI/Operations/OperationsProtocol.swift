import CEmbedded
import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// The routes for orchestrators and monitoring.
struct OperationsProtocol: WireProtocol {
    let routes: [APIRoute]

    init(_ loop: LoopServices) {
        let operations = OperationsEndpoints(services: loop.services)
        let metrics = MetricsEndpoint(services: loop.services)
        routes = [
            APIRoute(.get, "/livez", scope: .none, isVital: true, operations.live),
            APIRoute(.get, "/readyz", scope: .none, isVital: true, operations.ready),
            APIRoute(.get, "/readyz/reads", scope: .none, isVital: true, operations.readyForReads),
            APIRoute(.get, "/health", scope: .none, isVital: true, operations.health),
            APIRoute(.get, "/info", scope: .none, operations.info),
            APIRoute(.get, "/openapi.json", scope: .none, operations.openAPI),
            APIRoute(
                .get, "/metrics", scope: .unbound(.read, or: .metrics), isVital: true, respondsLater: true, metrics.get),
        ].map(\.atEdge)
    }
}

/// Liveness, readiness, version, and the description of the API.
struct OperationsEndpoints {
    let services: Services

    /// `GET /livez`: the process runs.
    func live(_ request: borrowing Request, _ call: Call) -> Response {
        .json(Array(#"{"status":"ok"}"#.utf8))
    }

    /// `GET /readyz`: 200 if the store can be read and written and the server is not shutting down; otherwise 503 with
    /// the reason. A response 200 may have a detail: a fault that an operator should repair although the server is
    /// ready.
    func ready(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try await ready(for: .readsAndWrites)
    }

    /// `GET /readyz/reads`: like ``ready(_:_:)``, but the store need not be writable.
    func readyForReads(_ request: borrowing Request, _ call: Call) async throws -> Response {
        try await ready(for: .reads)
    }

    private func ready(for operations: Readiness.Operations) async throws -> Response {
        if let reason = await services.readiness.check(operations) { throw Self.notReady(reason) }
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("status", "ready")
        if let failure = services.access.reloadFailure ?? services.access.identityKeys?.failure
            ?? services.upstream?.status.failure ?? services.webhooks.failure
        {
            writer.member("detail", failure)
        }
        writer.endObject()
        return .json(writer.finish())
    }

    /// `GET /health`: like ``ready(_:_:)``, but with the body `{"status":"ok"}`, which health checks commonly expect.
    func health(_ request: borrowing Request, _ call: Call) async throws -> Response {
        if let reason = await services.readiness.check() { throw Self.notReady(reason) }
        return .json(Array(#"{"status":"ok"}"#.utf8))
    }

    private static func notReady(_ reason: String) -> CoreError {
        CoreError(.unavailable, "not ready: \(reason)")
    }

    /// `GET /info`: the name and version of the program; for an edge also its status.
    func info(_ request: borrowing Request, _ call: Call) -> Response {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("name", services.build.name)
        writer.member("version", services.build.version)
        if let upstream = services.upstream {
            writer.key("edge")
            upstream.status.append(to: &writer)
        }
        writer.endObject()
        return .json(writer.finish())
    }

    /// `GET /openapi.json`: the description of the API.
    func openAPI(_ request: borrowing Request, _ call: Call) -> Response {
        Response(.ok, contentType: MediaType.json, entityTag: Self.openAPITag, body: .bytes(Self.openAPIText))
    }

    /// The OpenAPI document, shared by all responses.
    static let openAPIText = Array(String(cString: embedded_openapi()).utf8)

    private static let openAPITag = openAPIText.withUnsafeBytes { EntityTag(hashing: $0) }
}
