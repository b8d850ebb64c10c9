import APITestSupport
import JSON
import Testing

/// Limits of connections, headers and bodies: at each limit a request is served, one beyond it is refused.
@Suite struct ConnectionLimitTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func server(_ options: [String] = []) throws -> ServerProcess {
        try ServerProcess(database: directory.file("holdfast.db"), options)
    }

    @Test func `A body of the limit is read and a greater one is refused`() throws {
        let server = try server(["--max-body-size", "4KiB"])
        let start = profile("ada", ["1": "2"])
        let whole = start + String(repeating: " ", count: 4_096 - start.utf8.count)
        #expect(try server.request("POST", "/ups/save", whole).status == 200)
        let refused = try server.request("POST", "/ups/save", whole + " ")
        #expect(refused.status == 413)
        #expect(refused.field("content-type") == "application/problem+json")
        #expect(try server.request("GET", "/livez").status == 200)
    }

    @Test func `A chunked body is refused as soon as it is greater than the limit`() throws {
        let server = try server(["--max-body-size", "4KiB"])
        let client = try server.client()
        try client.send("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        let piece = String(repeating: " ", count: 4_096)
        try client.send("1000\r\n\(piece)\r\n1\r\n ")
        #expect(try client.receive().status == 413)
    }

    @Test func `A body greater than the limit is refused in the Agent's format below the Agent's paths`() throws {
        let server = try server()
        let client = try server.client()
        try client.send("POST /v1/activate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n")
        let tooLarge = try client.receive()
        #expect(tooLarge.status == 413)
        #expect(tooLarge["error"].string != nil)
        #expect(try server.request("GET", "/livez").status == 200)
    }

    @Test func `A header greater than the limit is refused and the server goes on`() throws {
        let server = try server()
        let long = String(repeating: "a", count: 16 * 1_024)
        #expect(try server.client().request("GET", "/livez", fields: ["X: \(long)"]).status == 431)
        #expect(try server.client().request("GET", "/\(long)").status == 414)
        #expect(try server.client().request("GET", "/livez", fields: ["X: \(long.dropLast(200))"]).status == 200)
    }

    @Test func `Connections beyond the limit are answered with 503 and closed`() throws {
        let server = try server(["--max-connections", "3"])
        let clients = try (0..<3).map { _ in try server.client() }
        for client in clients { #expect(try client.request("GET", "/livez").status == 200) }
        let refused = try server.client()
        #expect(try refused.receive().status == 503)
        #expect(refused.isClosedByPeer())
        #expect(try clients[0].request("GET", "/livez").status == 200)
    }
}
