import Definitions
import HTTPServer
import HoldfastCore
import Storage

/// What the Optimizely SDKs fetch and send by themselves, so that they work without their vendor's cloud: the datafile
/// that their polling managers ask for, the events that their event processors send, and predictions.
///
/// The published contract of these names statuses but no format of errors, and the SDKs read none: errors are problems,
/// as in the native API.
struct OptimizelySDKProtocol: WireProtocol {
    let routes: [APIRoute]
    let pathPrefixes = ["/datafiles", "/sdk", "/predict"]

    init(_ loop: LoopServices) {
        let datafile = SDKDatafileEndpoint(services: loop.services, projects: loop.projects)
        let events = SDKEventEndpoint(services: loop.services, projects: loop.projects)
        let predictions = SDKPredictionEndpoint(
            decisions: loop.decisions, projects: loop.projects, limit: loop.services.options.elementLimit)
        routes = [
            APIRoute(.get, "/datafiles/{sdk_key}.json", scope: .anyToken, readsQuery: true, datafile.get),
            APIRoute(
                .post, "/sdk/v1/events", scope: .token(.client), readsQuery: true, acceptsGzip: true,
                bodyBytes: SDKEventEndpoint.longestBody, events.post),
            APIRoute(.post, "/predict/{rule_id}", scope: .token(.client), readsQuery: true, predictions.post),
        ].map(\.atEdge)
    }
}

/// `GET /datafiles/{sdk_key}.json`: the active datafile, byte for byte as it was uploaded, or as it was generated without
/// what people say about experiments.
struct SDKDatafileEndpoint {
    let services: Services
    let projects: ProjectView

    /// How long a datafile must have been active before its response has the time of its activation, in milliseconds. The
    /// time has a precision of seconds: if two datafiles were activated within one second, a client would never see the
    /// second. It is longer than a server may take to notice what another has activated.
    private static let settlingTime: Timestamp = 2_000

    /// Responds with 304 if the client has the datafile, by `If-None-Match` or by `If-Modified-Since`. The Python SDK
    /// sends only the latter.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        guard let sdkKey = request.parameter(0) else {
            throw CoreError(.invalid, "the SDK key in the path must be UTF-8")
        }
        let project = try projects.project(named: sdkKey, for: call.access)
        // Clients send back exactly the date that they got.
        let early = Self.date(of: project.contentHash)
        let settled =
            project.storedAt + Self.settlingTime <= services.store.clock.now()
            ? HTTPDate.text(secondsSince1970: project.storedAt / 1_000) : nil
        // Caches ask each time, so that a change is seen within the interval of the client.
        let fields: [(name: StaticString, value: String)] = [
            ("Cache-Control", "no-cache"), ("Last-Modified", settled ?? early),
        ]
        // Exactly these dates, because clocks may be set back. `If-None-Match` goes first (RFC 9110 §13.1.3); the server
        // compares it.
        let date = request.field("if-none-match") == nil ? request.field("if-modified-since") : nil
        let isKnown = date != nil && (date == settled || date == early)
        guard !isKnown else {
            var response = Response(.notModified, entityTag: project.entityTag)
            response.fields = fields
            return response
        }
        // Once for each version, off the event loop.
        let content = project.isPublished ? project.published : try await services.compute { project.published }
        var response = Response(
            .ok, contentType: MediaType.json, entityTag: project.entityTag, body: .bytes(content))
        response.fields = fields
        return response
    }

    /// A date before 1988 that stands for a content, for clients that fetch it before it has settled: it lets them ask
    /// whether they have it, and is no datafile's time of activation.
    private static func date(of contentHash: UInt64) -> String {
        HTTPDate.text(secondsSince1970: Int64(contentHash >> 35))
    }
}
