import Bucketing
import HTTPServer
import JSON
import Storage

/// An error in the Agent's format: `{"error":"…"}`.
struct AgentError: DefinitionError {
    let status: Status
    let text: String
    /// Further header fields of the response.
    let fields: [(name: StaticString, value: String)]
    let mayBeStale: Bool

    init(_ status: Status, _ text: String, mayBeStale: Bool = false) {
        self.status = status
        self.text = text
        self.mayBeStale = mayBeStale
        fields = []
    }

    /// The error to throw before responding that a key is unknown. Another server may have defined the key, so the
    /// route reads the definitions and calls the handler again.
    static let undefined = AgentError(.notFound, "a key is unknown", mayBeStale: true)

    init(_ problem: Problem) {
        status = problem.status
        text = problem.detail
        fields = problem.fields
        mayBeStale = false
    }

    init(_ error: any Error) {
        if let error = error as? AgentError { self = error } else { self.init(Problem(error)) }
    }

    static let malformedBody = AgentError(.badRequest, "error parsing request body")
    static let missingUserID = AgentError(.badRequest, "missing \"userId\" in request payload")

    var response: AgentResponse {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("error", text)
        writer.endObject()
        return AgentResponse(status, writer, fields: fields)
    }
}

/// The response of an Agent operation, sent alone or in a batch.
struct AgentResponse: Sendable {
    let status: Status
    /// One JSON text and a line feed; empty for a response without a body.
    let json: [UInt8]
    let entityTag: EntityTag?
    /// Further header fields of the response.
    let fields: [(name: StaticString, value: String)]

    /// The maximum size of the decisions in one response, in bytes. It can be large because each decision repeats the
    /// user's attributes.
    static let longest = 8 << 20
    static let tooLong = AgentError(
        .unprocessableContent, "the decisions must take at most \(longest) bytes; send fewer keys or fewer attributes"
    ).response

    /// A response without a body.
    init(_ status: Status) {
        self.status = status
        json = []
        entityTag = nil
        fields = []
    }

    /// A response with JSON that is sent unchanged.
    init(unchanged json: [UInt8], entityTag: EntityTag) {
        status = .ok
        self.json = json
        self.entityTag = entityTag
        fields = []
    }

    /// A response with JSON, in which markup is escaped as by Go.
    init(
        _ status: Status = .ok, _ writer: consuming JSONWriter, fields: [(name: StaticString, value: String)] = []
    ) {
        self.status = status
        writer.endLine()
        json = GoJSON.escapingMarkup(writer.finish())
        entityTag = nil
        self.fields = fields
    }

    /// The response to a request that is not part of a batch.
    var httpResponse: Response {
        guard !json.isEmpty else { return Response(status) }
        var response = Response(
            status, contentType: "application/json; charset=utf-8", entityTag: entityTag, body: .bytes(json))
        response.fields = fields
        return response
    }
}
