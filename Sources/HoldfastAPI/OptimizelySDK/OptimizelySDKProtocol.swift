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

/// `GET /datafiles/{sdk_key}.json`: the active datafile. An uploaded datafile is sent byte for byte. A generated one is
/// sent without the members that only Holdfast uses.
struct SDKDatafileEndpoint {
    let services: Services
    let projects: ProjectView

    /// The time after an activation in which `Last-Modified` does not have the time of the activation.
    ///
    /// Dates have a precision of seconds. If a second datafile is activated within the same second, a client with the
    /// date of the first would never get the second. The settling time is also longer than a server takes to notice an
    /// activation by another server.
    private static let settlingTime = TimeSpan.seconds(2)

    /// Responds with 304 if the client has the datafile, by `If-None-Match` or by `If-Modified-Since`. The Python SDK
    /// sends only the latter.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        guard let sdkKey = request.parameter(0) else {
            throw CoreError(.invalid, "the SDK key in the path must be UTF-8")
        }
        let project = try projects.project(named: sdkKey, for: call.access)
        let contentDate = Self.date(of: project.contentHash)
        let isSettled = project.storedAt + Self.settlingTime <= services.store.clock.now()
        let activationDate =
            isSettled ? HTTPDate.text(secondsSince1970: project.storedAt.secondsSince1970) : nil
        // Caches must revalidate each time, so that a client gets a change within its polling interval.
        let fields: [(name: StaticString, value: String)] = [
            ("Cache-Control", "no-cache"), ("Last-Modified", activationDate ?? contentDate),
        ]
        // `If-None-Match` takes precedence (RFC 9110 §13.1.3). The server compares it with the entity tag.
        let date = request.field("if-none-match") == nil ? request.field("if-modified-since") : nil
        // Compares dates for equality, because clocks may be set back. The client may have received its date within the
        // settling time or after it.
        let isKnown = date != nil && (date == activationDate || date == contentDate)
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

    /// Returns a date that identifies a content, for responses within the ``settlingTime``. Clients can revalidate with
    /// it. It never equals a time of activation, because it is before 1988: the number of seconds has 29 bits.
    private static func date(of contentHash: UInt64) -> String {
        HTTPDate.text(secondsSince1970: Int64(contentHash >> 35))
    }
}
