import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import Storage

/// The endpoints that Optimizely SDKs call by themselves, so that they work without their vendor's cloud: the datafile
/// for polling, events, and predictions.
///
/// The published contract defines statuses but no format of errors, and the SDKs do not read error bodies. Errors are
/// problems, as in the native API.
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

/// `GET /datafiles/{sdk_key}.json`: the active datafile, byte for byte as it was uploaded, or as it was generated,
/// without members that only Holdfast uses.
struct SDKDatafileEndpoint {
    let services: Services
    let projects: ProjectView

    /// The time after an activation during which responses do not have its time as their date. Dates have a precision
    /// of seconds: if two datafiles were activated within one second, a client would never get the second one. This
    /// time is longer than a server takes to notice the activation by another server.
    private static let settlingTime = TimeSpan.seconds(2)

    /// Responds with 304 if the client has the datafile, by `If-None-Match` or by `If-Modified-Since`. The Python SDK
    /// sends only the latter.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        guard let sdkKey = request.parameter(0) else {
            throw CoreError(.invalid, "the SDK key in the path must be UTF-8")
        }
        let project = try projects.project(named: sdkKey, for: call.access)
        // A client sends the date that it has received, which may be from before or after the settling time.
        let early = Self.date(of: project.contentHash)
        let settled =
            project.storedAt + Self.settlingTime <= services.store.clock.now()
            ? HTTPDate.text(secondsSince1970: project.storedAt.secondsSince1970) : nil
        // Caches must revalidate each time, so that a client gets a change within its polling interval.
        let fields: [(name: StaticString, value: String)] = [
            ("Cache-Control", "no-cache"), ("Last-Modified", settled ?? early),
        ]
        // Compares dates for equality, because clocks may be set back. `If-None-Match` takes precedence (RFC 9110
        // §13.1.3); the server compares it.
        let date = request.field("if-none-match") == nil ? request.field("if-modified-since") : nil
        let isKnown = date != nil && (date == settled || date == early)
        guard !isKnown else {
            var response = Response(.notModified, entityTag: project.entityTag)
            response.fields = fields
            return response
        }
        // Created once for each version, off the event loop.
        let content = project.isPublished ? project.published : try await services.compute { project.published }
        var response = Response(
            .ok, contentType: MediaType.json, entityTag: project.entityTag, body: .bytes(content))
        response.fields = fields
        return response
    }

    /// Returns a date before 1988 that identifies a content, for responses before the ``settlingTime`` has passed.
    /// Clients can revalidate with it, and it never equals a time of activation.
    private static func date(of contentHash: UInt64) -> String {
        HTTPDate.text(secondsSince1970: Int64(contentHash >> 35))
    }
}
