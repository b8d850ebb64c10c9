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
        let examples = ExampleRequest.all(in: document)
        for example in examples {
            let name = "\(example.method) \(example.target)"
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

    /// Ids and times differ from those of the example; the members do not.
    private func expectSameMembers(_ answer: JSONValue, _ example: JSONValue, _ name: String) {
        guard let example = example.object else { return }
        #expect(answer.object?.members.map(\.key) == example.members.map(\.key), "\(name)")
    }
}
