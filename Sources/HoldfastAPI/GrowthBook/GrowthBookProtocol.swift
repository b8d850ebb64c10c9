import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// The remote evaluation of GrowthBook's SDKs, compatible with GrowthBook Proxy: SDKs send a user's attributes, and
/// receive values instead of rules.
///
/// SDKs send only the client key, in the path. Usually the client key is the secret of a token. If a request has the
/// secret in a header field, or if the server has no tokens, the client key is the SDK key of the project instead.
///
/// - SeeAlso: `packages/lib/eval` and `featuresController.ts` of growthbook/growthbook-proxy.
struct GrowthBookProtocol: WireProtocol {
    let routes: [APIRoute]
    let pathPrefixes = ["/api", "/sub"]
    /// The beginnings of paths with a client key, which may be a secret.
    static let keyPrefixes = ["/api/eval/", "/sub/"]

    init(_ loop: LoopServices) {
        let evaluation = GrowthBookEvaluation(decisions: loop.decisions, projects: loop.projects)
        let changes = GrowthBookChanges(feed: loop.services.changes, projects: loop.projects)
        routes = [
            APIRoute(.post, "/api/eval/{client_key}", scope: .token(.client), evaluation.post),
            APIRoute(.get, "/sub/{client_key}", scope: .token(.client), changes.get),
        ].map(\.atEdge)
    }

    func credential(of request: borrowing Request) -> Substring? {
        request.secretOfFields ?? request.path.split(separator: "/").last
    }

    func response(to error: any Error, on _: String?) -> Response {
        let problem = Problem(error)
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("status", problem.status.code)
        writer.member("error", problem.sentence)
        writer.endObject()
        writer.endLine()
        var response = Response(problem.status, contentType: MediaType.json, body: .bytes(writer.finish()))
        response.fields = problem.fields
        return response
    }
}

/// `GET /sub/{client_key}`: server-sent events `features-updated`, after which an SDK evaluates again.
struct GrowthBookChanges {
    let feed: ChangeFeed
    let projects: ProjectView

    /// Opens the stream. The first event is sent when the datafile changes. A client that reconnects names its last
    /// event; if the datafile has changed since then, the first event is sent at once.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let project = try request.growthBookProject(projects, call)
        let known = request.field("last-event-id").flatMap { Int64($0) } ?? project.version
        return Response(
            changes: try feed.open(sdkKey: project.sdkKey, for: call.access, knownVersion: known) {
                ChangeStream($0, .featuresUpdated, call.admission)
            })
    }
}

extension Request {
    /// The secret of a token in a header field; `nil` if there is none.
    fileprivate var secretOfFields: Substring? {
        tokenSecret(authorization: field("authorization"), apiKey: field("x-api-key"))
    }

    /// Returns the project that the header field names. Without the field, a client key that is not a secret names the
    /// project; otherwise it is the default project.
    func growthBookProject(_ projects: ProjectView, _ call: Call) throws(CoreError) -> Project {
        guard let key = parameter(0) else {
            throw CoreError(.invalid, "the client key in the path must be UTF-8")
        }
        let isSecret = call.admission.token != nil && secretOfFields == nil
        return try projects.project(named: sdkKey ?? (isSecret ? nil : key), for: call.access)
    }
}
