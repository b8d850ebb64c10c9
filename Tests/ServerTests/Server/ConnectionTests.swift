import APITestSupport
import Foundation
import JSON
import Testing

/// How clients of all kinds are served over real sockets.
@Suite struct ConnectionTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func server(_ options: [String] = []) throws -> ServerProcess {
        try ServerProcess(database: directory.file("holdfast.db"), options)
    }

    @Test func `1,000 pipelined requests are answered in order`() throws {
        let server = try server()
        let client = try server.client()
        // Saves wait for their commit and lookups do not, and still each comes in its turn.
        let requests = (0..<1_000).map { number in
            number % 3 == 0
                ? HTTPClient.head("POST", "/ups/save", profile("u\(number)", ["1": "v\(number)"]))
                : HTTPClient.head("GET", "/v1/profiles/u\(number / 3 * 3)")
        }
        let sending = DispatchGroup()
        let all = requests.joined()
        Thread.detachNewThread(in: sending) { try client.send(all) }
        for number in 0..<1_000 {
            let response = try client.receive()
            #expect(response.status == 200)
            #expect(response.text == profile("u\(number / 3 * 3)", ["1": "v\(number / 3 * 3)"]))
        }
        sending.wait()
    }

    @Test func `What a GET has saved is there for the requests behind it, and no HEAD saves`() throws {
        let server = try server()
        let client = try server.client()
        func save(_ user: String) -> String {
            "/ups/save?user_id=\(user)&experiment_bucket_map=%7B%221%22:%7B%22variation_id%22:%22v%22%7D%7D"
        }
        for number in 0..<50 {
            let requests =
                HTTPClient.head("GET", save("u\(number)")) + HTTPClient.head("GET", "/ups/lookup?user_id=u\(number)")
            try client.send(requests)
            for _ in 0..<2 { #expect(try client.receive().text == profile("u\(number)", ["1": "v"])) }
        }
        let refused = try client.request("HEAD", save("eve"))
        #expect(refused.status == 405)
        #expect(refused.field("allow") == "GET, POST, OPTIONS")
        #expect(try client.request("GET", "/v1/profiles/eve").status == 404)
    }

    @Test func `A field whose value is not UTF-8 is not taken for an absent one`() throws {
        let server = try server()
        let client = try server.client()
        #expect(
            try client.request("PUT", "/v1/experiments/checkout", #"{"variations":["a"],"status":"paused"}"#).status
                == 201)
        for (field, status) in [("If-Match: \"?\"", 412), ("X-Optimizely-SDK-Key: ?", 400)] {
            let client = try server.client()
            let head = Array("DELETE /v1/experiments/checkout HTTP/1.1\r\nHost: localhost\r\n\(field)\r\n\r\n".utf8)
            try client.send(head.map { $0 == UInt8(ascii: "?") ? 0xFF : $0 })
            #expect(try client.receive().status == status)
        }
        #expect(try client.request("GET", "/v1/experiments/checkout")["status"] == "paused")
        #expect(try client.request("GET", "/v1/audit")["entries"].array?.count == 1)
        server.stop()
    }

    @Test(arguments: ["/ups/save", "/v1/profiles", "/v1/decide"])
    func `A body that is encoded is refused by the name of its coding`(target: String) throws {
        let server = try server()
        let response = try server.client().request("POST", target, "\u{1f}\u{8b}", fields: ["Content-Encoding: gzip"])
        #expect(response.status == 415)
        #expect(response.field("accept-encoding") == "identity")
        #expect(response[target == "/v1/decide" ? "error" : "detail"].string?.contains("'gzip'") == true)
        let plain = profile("ada", ["11": "1"])
        #expect(
            try server.client().request("POST", "/ups/save", plain, fields: ["Content-Encoding: Identity"]).status
                == 200)
    }

    @Test func `A request that comes byte by byte is answered`() throws {
        let server = try server()
        let client = try server.client()
        let text = profile("ada", ["11": "1"])
        let chunked =
            "POST /ups/save HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            + "1\r\n{\r\n\(String(text.utf8.count - 1, radix: 16));a=b\r\n\(text.dropFirst())\r\n0\r\nX: y\r\n\r\n"
        for request in [
            HTTPClient.head("POST", "/ups/save", text), chunked, HTTPClient.head("GET", "/v1/profiles/ada"),
        ] {
            for byte in request.utf8 { try client.send([byte]) }
            #expect(try client.receive().text == text)
        }
    }

    @Test func `2,000 idle connections keep nobody else from being served`() throws {
        let server = try server()
        let idle = try (0..<2_000).map { _ in try server.client() }
        let client = try server.client()
        for number in 0..<200 {
            let text = profile("u\(number)", ["1": "2"])
            #expect(try client.request("POST", "/ups/save", text).text == text)
            #expect(try client.request("GET", "/v1/profiles/u\(number)").text == text)
        }
        for connection in idle.prefix(20) + idle.suffix(20) {
            #expect(try connection.request("GET", "/livez").status == 200)
        }
    }

    @Test func `A sender that is too slow is cut off in time and others are served meanwhile`() throws {
        let server = try server(["--header-timeout", "500ms", "--body-timeout", "500ms"])
        let (slow, slowBody) = (try server.client(), try server.client())
        let start = ContinuousClock.now
        try slow.send("GET /livez HT")
        try slowBody.send("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        #expect(try server.request("GET", "/livez").status == 200)
        for client in [slow, slowBody] {
            #expect(try client.receive().status == 408)
            #expect(client.isClosedByPeer())
        }
        #expect(ContinuousClock.now - start >= .milliseconds(500))
    }

    @Test func `A connection without a request is closed when it was idle for long`() throws {
        let server = try server(["--idle-timeout", "1s"])
        let client = try server.client()
        #expect(try client.request("GET", "/livez").status == 200)
        #expect(client.isClosedByPeer())
    }

    @Test func `A client that disappears within its body leaves nothing behind`() throws {
        let server = try server()
        let text = profile("ada", ["11": "1"])
        for _ in 0..<50 {
            let client = try server.client()
            try client.send(
                "POST /ups/save HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(text.utf8.count + 1)\r\n\r\n\(text)")
        }
        let halfImport = try server.client()
        try halfImport.send(
            "POST /v1/profiles HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"use")
        halfImport.finishSending()
        _ = try? halfImport.receive()
        let client = try server.client()
        #expect(try client.request("GET", "/v1/profiles").text == "")
        // Those that went away are no longer open; the loops see it in turn, so this is asked until it is so.
        let deadline = ContinuousClock.now + .seconds(60)
        var open: String?
        repeat {
            open = try client.request("GET", "/metrics").text.split(separator: "\n")
                .first { $0.hasPrefix("holdfast_connections ") }.map(String.init)
        } while open != "holdfast_connections 2" && open != "holdfast_connections 1" && .now < deadline
        #expect(open == "holdfast_connections 2" || open == "holdfast_connections 1")
    }

    @Test func `HTTP/1.0 is answered and closed, and kept open where it asks for it`() throws {
        let server = try server()
        let client = try server.client()
        try client.send("GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        #expect(try client.receive().status == 200)
        try client.send("GET /v1/profiles HTTP/1.0\r\n\r\n")
        #expect(try client.receive().status == 200)
        #expect(client.isClosedByPeer())
    }

    @Test func `HEAD has the fields of GET and no body`() throws {
        let server = try server()
        let client = try server.client()
        _ = try client.request("POST", "/ups/save", profile("ada", ["11": "1"]))
        let get = try client.request("GET", "/v1/profiles/ada")
        let head = try client.request("HEAD", "/v1/profiles/ada")
        #expect(head.status == 200)
        #expect(head.field("content-length") == get.field("content-length"))
        #expect(head.field("etag") == get.field("etag"))
        #expect(try client.request("GET", "/livez").status == 200)
    }

    @Test func `A body is asked for where the client waits for that`() throws {
        let server = try server()
        let client = try server.client()
        let text = profile("ada", ["11": "1"])
        try client.send(
            "POST /ups/save HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: \(text.utf8.count)\r\n\r\n"
        )
        #expect(try client.receive().status == 100)
        try client.send(text)
        #expect(try client.receive().text == text)
    }

    @Test(arguments: [
        ("GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("POST /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501), ("GET /livez HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        ("GET /livez HTTP/1.1\r\n\r\n", 400), ("GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n", 400),
        ("GET /livez HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\nX: b\r\n c\r\n\r\n", 400),
        ("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        ("POST /ups/save HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{FC}\u{3}\u{3}\r\n\r\n", 400),
    ])
    func `A request that cannot be served is refused as a problem`(request: String, status: Int) throws {
        let server = try server()
        let client = try server.client()
        try client.send(request)
        let response = try client.receive()
        #expect(response.status == status)
        #expect(response.field("content-type") == "application/problem+json")
        #expect(response["status"] == .integer(Int64(status)))
        #expect(response.field("x-request-id")?.isEmpty == false)
        if status == 405 { #expect(response.field("allow") == "GET, HEAD, OPTIONS") }
    }
}

extension Thread {
    /// Runs something beside the test; what it throws is an issue of the test.
    fileprivate static func detachNewThread(in group: DispatchGroup, _ body: @escaping @Sendable () throws -> Void) {
        group.enter()
        detachNewThread {
            defer { group.leave() }
            do { try body() } catch { Issue.record(error) }
        }
    }
}
