import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// The OpenFeature Remote Evaluation Protocol, version 0.3, by which OpenFeature providers evaluate flags.
struct OFREPProtocol: WireProtocol {
    let routes: [APIRoute]
    let pathPrefixes = ["/ofrep"]
    private let gate: AccessGate

    private static let changesPath = "/ofrep/v1/changes"

    init(_ loop: LoopServices) {
        let services = loop.services
        gate = loop.gate
        let evaluation = OFREPEvaluation(
            decisions: loop.decisions, projects: loop.projects, changesPath: Self.changesPath)
        let changes = OFREPChanges(feed: services.changes, projects: loop.projects)
        routes = [
            APIRoute(.post, "/ofrep/v1/evaluate/flags/{key}", scope: .token(.client), callback: evaluation.evaluateOne),
            APIRoute(
                .post, "/ofrep/v1/evaluate/flags", scope: .token(.client), readsQuery: true, evaluation.evaluateAll),
            APIRoute(.get, Self.changesPath, scope: .token(.client), readsQuery: true, changes.get),
        ].map(\.atEdge)
    }

    /// The secret of a bearer token or an API key. For the stream of changes, also the secret of the token that made
    /// the ticket in the URL.
    func credential(of request: borrowing Request) -> Substring? {
        if let secret = tokenSecret(authorization: request.field("authorization"), apiKey: request.field("x-api-key")) {
            return secret
        }
        guard request.path == Self.changesPath,
            let ticket = request.queryItems()?.first(where: { $0.name == OFREPChanges.ticketParameter })?.value
        else { return nil }
        return gate.secret(ofTicket: ticket)
    }

    func response(to error: any Error, on _: String?) -> Response {
        OFREPError(error).response
    }
}

/// `GET /ofrep/v1/changes`: server-sent events `refetchEvaluation`, which notify a provider that its evaluations may
/// have changed.
struct OFREPChanges {
    let feed: ChangeFeed
    let projects: ProjectView

    /// The query parameter with the ticket that replaces a token, because browsers' event streams cannot send header
    /// fields.
    static let ticketParameter = "ticket"
    /// The query parameter with the version of the datafile that the provider's evaluations come from.
    static let versionParameter = "since"

    /// Sends an event when the datafile is not the one that the provider knows. A provider that reconnects knows the
    /// datafile of its last event; a new one, the datafile of its evaluations.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let query = try request.query(knowing: ["sdk_key", Self.versionParameter, Self.ticketParameter])
        let project = try projects.project(named: query["sdk_key"], for: call.access)
        let known = (request.field("last-event-id") ?? query[Self.versionParameter]).flatMap { Int64($0) }
        return Response(
            changes: try feed.open(sdkKey: project.sdkKey, for: call.access, knownVersion: known) {
                ChangeStream($0, .refetchEvaluation, call.admission)
            })
    }
}

/// An error in the format of OFREP: `{"key"?,"errorCode","errorDetails"}`.
struct OFREPError: DefinitionError {
    /// The error codes of OFREP.
    enum Code: String, CaseIterable {
        case parseError = "PARSE_ERROR"
        case targetingKeyMissing = "TARGETING_KEY_MISSING"
        case invalidContext = "INVALID_CONTEXT"
        case flagNotFound = "FLAG_NOT_FOUND"
        case general = "GENERAL"
    }

    let status: Status
    let code: Code
    let details: String
    /// The flag; `nil` if the error is not about one.
    var key: String?
    /// Further header fields of the response.
    private let fields: [(name: StaticString, value: String)]
    let mayBeStale: Bool

    init(_ code: Code, _ details: String, key: String? = nil) {
        mayBeStale = code == .flagNotFound
        status = code == .flagNotFound ? .notFound : .badRequest
        self.code = code
        self.details = details.shortened(to: Problem.longestDetail)
        self.key = key
        fields = []
    }

    /// Renders any other error, such as 401, 413 or 503 with its `Retry-After`.
    init(_ error: any Error, key: String? = nil) {
        if let error = error as? OFREPError {
            self = error
            self.key = error.key ?? key
            return
        }
        let problem = Problem(error)
        mayBeStale = (error as? any DefinitionError)?.mayBeStale ?? false
        status = problem.status
        code = .general
        details = problem.detail
        self.key = key
        fields = problem.fields
    }

    /// Describes an invalid user in a context.
    init(context error: CoreError) {
        let place = error.pointer.map { "; at /context\($0.string)" } ?? ""
        self.init(.invalidContext, error.detail + place)
    }

    /// The error for a flag that a project does not have.
    static func notFound(_ key: Identifier, in datafile: Datafile) -> OFREPError {
        OFREPError(.flagNotFound, CoreError.undefinedFlag(key, in: datafile).detail, key: key.string)
    }

    /// Writes the error, as a response or among the flags of a response. All members are written, because providers
    /// read them without checking that they exist.
    func append(to writer: inout JSONWriter) {
        writer.beginObject()
        if let key { writer.member("key", key) }
        writer.member("errorCode", code.rawValue)
        writer.member("errorDetails", details)
        writer.endObject()
    }

    var response: Response {
        var writer = JSONWriter()
        append(to: &writer)
        writer.endLine()
        var response = Response(status, contentType: MediaType.json, body: .bytes(writer.finish()))
        response.fields = fields
        return response
    }
}
