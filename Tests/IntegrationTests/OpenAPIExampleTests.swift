import Bucketing
import Testing

/// What the published description shows is what the server does.
@Suite struct OpenAPIExampleTests {
    private let directory: TemporaryDirectory
    private let server: ServerProcess
    private let client: HTTPClient
    private let document: JSONValue

    init() throws {
        directory = try TemporaryDirectory()
        server = try ServerProcess(database: directory.file("holdfast.db"))
        client = try server.client()
        document = try client.request("GET", "/openapi.json").json
        // What the examples look up.
        for (method, target, body) in [
            ("PUT", "/v1/experiments/checkout", #"{"variations":["control","new"]}"#),
            ("POST", "/ups/save", profile("ada", ["11": "1", "22": "2"])),
        ] {
            #expect(try client.request(method, target, body).status < 300)
        }
    }

    @Test func `The description is served with an entity tag`() throws {
        #expect(document["openapi"] == "3.1.0")
        let tag = try #require(try client.request("GET", "/openapi.json").field("etag"))
        #expect(try client.request("GET", "/openapi.json", fields: ["If-None-Match: \(tag)"]).status == 304)
    }

    @Test func `Each example request is answered with success, and as described`() throws {
        var count = 0
        let order = ["get", "post", "put", "patch", "delete"]
        for method in order {
            // A part is erased before the whole that it belongs to.
            for path in try #require(document["paths"].object).reversed() {
                guard let operation = path.value.object?[method] else { continue }
                count += 1
                let parameters = parameters(path.value) + parameters(operation)
                let target = target(path.key, parameters)
                if operation["responses"]["200"]["content"]["text/event-stream"].object != nil {
                    try expectStream(at: target, "\(method) \(target)")
                    continue
                }
                let answer = try client.request(
                    method.uppercased(), target, requestExample(operation), fields: fields(parameters, operation))
                let described = operation["responses"]["\(answer.status)"]
                #expect((200..<300).contains(answer.status), "\(method) \(target): \(answer.text)")
                #expect(described.object != nil, "\(method) \(target) answers \(answer.status)")
                let type = answer.field("content-type")?.split(separator: ";").first.map(String.init)
                #expect(type == described["content"].object?.members.first?.key, "\(method) \(target)")
                if let type, type == "application/json" {
                    expectSameMembers(answer.json, described["content"][type]["example"], "\(method) \(target)")
                }
            }
        }
        #expect(count > 20)
    }

    /// An answer without end is read to its first event.
    private func expectStream(at target: String, _ name: String) throws {
        let client = try server.client()
        try client.send(HTTPClient.head("GET", target))
        let head = try client.receiveHead()
        #expect(head.status == 200, "\(name)")
        #expect(head.field("content-type") == "text/event-stream", "\(name)")
        #expect(try client.receiveChunk()?.hasPrefix("event: ") == true, "\(name)")
    }

    private func parameters(_ item: JSONValue) -> [JSONValue] {
        (item["parameters"].array ?? []).map { parameter in
            guard let name = parameter["$ref"].string?.split(separator: "/").last else { return parameter }
            return document["components"]["parameters"][String(name)]
        }
    }

    private func target(_ path: String, _ parameters: [JSONValue]) -> String {
        var target = path
        var query: [String] = []
        for parameter in parameters where parameter["required"] == true && parameter["in"] != "header" {
            let name = parameter["name"].string ?? ""
            let content = parameter["content"]["application/json"]["example"]
            let text = parameter["example"].string ?? escaped(content.encoded())
            if parameter["in"] == "path" {
                target = target.replacing("{\(name)}", with: text)
            } else {
                query.append("\(name)=\(text)")
            }
        }
        return query.isEmpty ? target : "\(target)?\(query.joined(separator: "&"))"
    }

    /// The media type of the body, and the header fields that must be there.
    private func fields(_ parameters: [JSONValue], _ operation: JSONValue) -> [String] {
        let required = parameters.filter { $0["in"] == "header" && $0["required"] == true }
        let mediaType = operation["requestBody"]["content"].object?.members.first?.key
        return required.map { "\($0["name"].string ?? ""): \($0["example"].string ?? "")" }
            + (mediaType.map { ["Content-Type: \($0)"] } ?? [])
    }

    private func escaped(_ bytes: [UInt8]) -> String {
        bytes.map { "%" + String(UInt16($0) + 0x100, radix: 16).suffix(2) }.joined()
    }

    private func requestExample(_ operation: JSONValue) -> String? {
        guard let example = operation["requestBody"]["content"].object?.members.first?.value.object?["example"] else {
            return nil
        }
        return example.string ?? String(decoding: example.encoded(), as: UTF8.self)
    }

    /// Ids and times differ from those of the example; the members do not.
    private func expectSameMembers(_ answer: JSONValue, _ example: JSONValue, _ name: String) {
        guard let example = example.object else { return }
        #expect(answer.object?.members.map(\.key) == example.members.map(\.key), "\(name)")
    }
}
