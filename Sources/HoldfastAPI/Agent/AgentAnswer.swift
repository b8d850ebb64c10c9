import Bucketing
import HTTPServer
import Storage

/// What an Agent operation answers, to a connection or into a batch.
struct AgentAnswer: Sendable {
    typealias Receiver = @Sendable (AgentAnswer) -> Void

    let status: Status
    /// One JSON text and a line feed; empty for an answer without a body.
    let json: [UInt8]
    let entityTag: EntityTag?
    /// Further fields of the answer.
    let fields: [(name: StaticString, value: String)]

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

    var response: Response {
        guard !json.isEmpty else { return Response(status) }
        var response = Response(
            status, contentType: "application/json; charset=utf-8", entityTag: entityTag, body: .bytes(json))
        response.fields = fields
        return response
    }

    /// Go's `encoding/json` escapes what HTML gives a meaning; outside of strings these characters do not occur.
    private static func escapingMarkup(_ json: [UInt8]) -> [UInt8] {
        guard json.contains(where: isMarkup) else { return json }
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

    private static func isMarkup(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "<") || byte == UInt8(ascii: ">") || byte == UInt8(ascii: "&")
    }
}
