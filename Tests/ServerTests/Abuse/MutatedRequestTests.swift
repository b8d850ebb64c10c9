import APITestSupport
import JSON
import TestSupport
import Testing

/// Every operation of the published description, asked with what is nearly right: it is answered, and never as a
/// failure of the server.
@Suite struct MutatedRequestTests {
    private struct Example {
        let method: String
        let target: String
        let body: [UInt8]
    }

    private let directory: TemporaryDirectory
    private let server: ServerProcess

    init() throws {
        directory = try TemporaryDirectory()
        server = try ServerProcess(database: directory.file("holdfast.db"))
    }

    @Test func `No mutation of an example stops the server or is a failure of it`() throws {
        let examples = try self.examples()
        #expect(examples.count > 20)
        let bodies = examples.map(\.body)
        var random = SeededGenerator(seed: 7)
        var client = try server.client()
        for _ in 0..<40 {
            for example in examples {
                let request = mutation(of: example, bodies, using: &random)
                try client.send(request)
                let response = try client.receive()
                #expect(isNoFailure(response), "\(String(decoding: request, as: UTF8.self)): \(response.text)")
                // What cannot be told apart from what follows it ends the connection.
                if response.field("connection") == "close" { client = try server.client() }
            }
        }
        #expect(try server.request("GET", "/readyz").status == 200)
        server.stop()
    }

    /// Segments are asked of a service that is no part of the server.
    private func isNoFailure(_ response: TestResponse) -> Bool {
        response.status < 500 || response.status == 501 || response.status == 505 || response.text.contains("segments")
    }

    /// Changes the target, the body, or both.
    private func mutation(of example: Example, _ bodies: [[UInt8]], using random: inout SeededGenerator) -> [UInt8] {
        var target = Array(example.target.utf8)
        var body = example.body
        if Int.random(in: 0..<4, using: &random) == 0 {
            target = target.mutated(with: [Array("?detail=true&a=%00".utf8)], using: &random)
        }
        if !body.isEmpty { body = body.mutated(with: bodies, using: &random) }
        let head =
            "Host: localhost\r\nContent-Type: application/json\r\nX-Optimizely-SDK-Key: default\r\nContent-Length: \(body.count)\r\n\r\n"
        return Array("\(example.method) ".utf8) + target + Array(" HTTP/1.1\r\n\(head)".utf8) + body
    }

    private func examples() throws -> [Example] {
        let document = try server.request("GET", "/openapi.json").json
        var examples: [Example] = []
        for path in try #require(document["paths"].object) {
            for operation in path.value.object?.members ?? [] where operation.value["responses"].object != nil {
                // A stream of events does not end.
                guard operation.value["responses"]["200"]["content"]["text/event-stream"].isNull else { continue }
                let content = operation.value["requestBody"]["content"].object?.members.first?.value
                let body = content.map { $0["example"] } ?? .null
                examples.append(
                    Example(
                        method: operation.key.uppercased(), target: path.key.replacing(/\{[a-z_]+\}/, with: "ada"),
                        body: body.isNull ? [] : body.string.map { Array($0.utf8) } ?? body.encoded()))
            }
        }
        return examples
    }
}
