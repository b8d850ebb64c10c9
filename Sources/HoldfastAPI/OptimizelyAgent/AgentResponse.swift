import Bucketing
import Glibc
import HTTPServer
import JSON
import Storage

/// Why an Agent operation cannot be done, as the Agent's clients are told: `{"error":"…"}`.
struct AgentError: Error {
    let status: Status
    let text: String
    /// Further fields of the answer.
    let fields: [(name: StaticString, value: String)]

    init(_ status: Status, _ text: String) {
        self.status = status
        self.text = text
        fields = []
    }

    init(_ problem: Problem) {
        status = problem.status
        text = problem.detail
        fields = problem.fields
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

/// What an Agent operation answers, to a connection or into a batch.
struct AgentResponse: Sendable {
    typealias Receiver = @Sendable (AgentResponse) -> Void

    let status: Status
    /// One JSON text and a line feed; empty for an answer without a body.
    let json: [UInt8]
    let entityTag: EntityTag?
    /// Further fields of the answer.
    let fields: [(name: StaticString, value: String)]

    /// Bytes of the decisions of one answer, each of which repeats the user's attributes.
    static let longest = 8 << 20
    static let tooLong = AgentError(
        .unprocessableContent, "the decisions must take at most \(longest) bytes: ask for fewer keys, or with fewer attributes"
    ).response

    /// An answer without a body.
    init(_ status: Status) {
        self.status = status
        json = []
        entityTag = nil
        fields = []
    }

    /// JSON that is sent as it stands.
    init(unchanged json: [UInt8], entityTag: EntityTag) {
        status = .ok
        self.json = json
        self.entityTag = entityTag
        fields = []
    }

    init(
        _ status: Status = .ok, _ writer: consuming JSONWriter, fields: [(name: StaticString, value: String)] = []
    ) {
        self.status = status
        writer.endLine()
        json = Self.escapingMarkup(writer.finish())
        entityTag = nil
        self.fields = fields
    }

    var httpResponse: Response {
        guard !json.isEmpty else { return Response(status) }
        var response = Response(
            status, contentType: "application/json; charset=utf-8", entityTag: entityTag, body: .bytes(json))
        response.fields = fields
        return response
    }

    /// Go's `encoding/json` escapes what HTML gives a meaning; outside of strings these characters do not occur.
    private static func escapingMarkup(_ json: [UInt8]) -> [UInt8] {
        let hasMarkup = json.withUnsafeBytes { bytes in
            bytes.baseAddress.map { base in
                markup.contains { memchr(base, Int32($0), bytes.count) != nil }
            } ?? false
        }
        guard hasMarkup else { return json }
        var escaped: [UInt8] = []
        escaped.reserveCapacity(json.count + 64)
        for byte in json {
            if isMarkup(byte) {
                escaped.append(contentsOf: "\\u00\(String(byte, radix: 16))".utf8)
            } else {
                escaped.append(byte)
            }
        }
        return escaped
    }

    private static let markup = Array("<>&".utf8)

    private static func isMarkup(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "<") || byte == UInt8(ascii: ">") || byte == UInt8(ascii: "&")
    }
}
