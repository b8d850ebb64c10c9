/// Holdfast's own REST API below `/v1`. `GET /openapi.json` describes it; a test compares the description with these
/// routes.
///
/// Each folder beside this file is one topic. Its file `…Routes.swift` lists the routes, and the other files have the
/// handlers.
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
