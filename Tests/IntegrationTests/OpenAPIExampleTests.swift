import Bucketing
import JSON
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
            ("PUT", "/v1/attributes/country", #"{"type":"country"}"#),
            ("PUT", "/v1/segments/germans", #"{"conditions":{"type":"custom_attribute","name":"country","value":"de"}}"#),
            ("PATCH", "/v1/profiles/ada/attributes", #"{"country":"de"}"#),
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
        let examples = ExampleRequest.all(in: document)
        for example in examples {
            let name = "\(example.method) \(example.target)"
            if example.operation["responses"]["200"]["content"]["text/event-stream"].object != nil {
                try expectStream(at: example.target, name)
                continue
            }
            let answer = try client.request(example.method, example.target, example.body, fields: example.fields)
            let described = example.operation["responses"]["\(answer.status)"]
            #expect((200..<300).contains(answer.status), "\(name): \(answer.text)")
            #expect(described.object != nil, "\(name) answers \(answer.status)")
            let type = answer.field("content-type")?.split(separator: ";").first.map(String.init)
            #expect(type == described["content"].object?.members.first?.key, "\(name)")
            if let type, type == "application/json" {
                expectSameMembers(answer.json, described["content"][type]["example"], name)
            }
        }
        #expect(examples.count > 20)
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

    /// Ids and times differ from those of the example; the members do not.
    private func expectSameMembers(_ answer: JSONValue, _ example: JSONValue, _ name: String) {
        guard let example = example.object else { return }
        #expect(answer.object?.members.map(\.key) == example.members.map(\.key), "\(name)")
    }
}
