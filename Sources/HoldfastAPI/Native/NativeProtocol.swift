/// Holdfast's own REST API. `GET /openapi.json` describes it; a test compares the description with these routes. The
/// routes of each topic are listed beside its endpoints.
struct NativeProtocol: WireProtocol {
    let routes: [APIRoute]

    init(_ loop: LoopServices) {
        let topics = [
            Self.users, Self.decisions, Self.segments, Self.definitions, Self.experiments, Self.results, Self.events,
            Self.approvals, Self.access, Self.webhooks,
        ]
        routes = topics.flatMap { $0(loop) }
    }
}
