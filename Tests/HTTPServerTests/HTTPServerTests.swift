import Dispatch
import Glibc
import Synchronization
import Testing

@testable import HTTPServer

/// The whole server over real sockets. Serialized, because one test uses most of the usual descriptor limit.
@Suite(.serialized) struct HTTPServerTests {
    let observations = Observations()

    func withServer(
        eventLoops: Int = 2, _ limits: Limits = Limits(), _ body: (HTTPServer, UInt16) throws -> Void
    ) throws {
        let server = try server(eventLoops, limits)
        defer {
            server.stop(within: 0)
            server.wait()
        }
        try body(server, server.address.port)
    }

    func server(_ eventLoops: Int, _ limits: Limits = Limits()) throws -> HTTPServer {
        var configuration = HTTPServer.Configuration()
        configuration.address = "127.0.0.1:0"
        configuration.eventLoops = eventLoops
        configuration.limits = limits
        let observations = observations
        return try HTTPServer(configuration) { _ in TestApplication(observations) }
    }

    // MARK: Serving

    @Test func `Responses to a thousand pipelined requests are in order`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send((0..<1000).map { request("GET", "/number/\($0)") }.joined())
            for number in 0..<1000 {
                let body = try client.response().body
                #expect(body == "\(number)")
            }
        }
    }

    @Test func `A refusal is the response to the request that was read`() throws {
        var limits = Limits()
        limits.bodyBytes = 10
        try withServer(limits) { _, port in
            let post = try TestClient(port: port)
            try post.send(request("POST", "/echo", "Content-Length: 11", "X-Request-Id: mine"))
            let refusal = try post.response()
            #expect(refusal.status == 413)
            #expect(TestClient.field("X-Request-Id", of: refusal.head) == "mine")
            let head = try TestClient(port: port)
            try head.send(request("HEAD", "/now", "Content-Length: 11"))
            let text = try head.rest()
            #expect(text.hasPrefix("HTTP/1.1 413 "))
            #expect(text.hasSuffix("\r\n\r\n"))
        }
    }

    @Test func `Metrics are collected of loops that have not ended`() async throws {
        let server = try server(2)
        server.stop(within: 0)
        server.wait()
        #expect(await server.collect { _, statistics in statistics.accepted }.isEmpty)
    }

    @Test func `A task whose client disconnects is cancelled`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/waiting"))
            #expect(observations.hasBegunTask.comes())
            client.reset()
            #expect(observations.taskWasCancelled.comes())
        }
    }

    @Test func `A request may come byte by byte`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            for byte in request("POST", "/echo", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n0\r\n\r\n").utf8 {
                try client.send([byte])
            }
            #expect(try client.response().body == "abc")
        }
    }

    @Test func `Responses given at the end of a batch do not hold up what follows`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            let batched = request("POST", "/batched", "Content-Length: 1", body: "x")
            try client.send(batched + request("GET", "/now") + batched + batched + request("GET", "/now"))
            let bodies = try (0..<5).map { _ in try client.response().body }
            #expect(bodies == ["batched", "now", "batched", "batched", "now"])
        }
    }

    @Test func `Idle connections are no hindrance`() throws {
        try raiseDescriptorLimit(to: 6000)
        try withServer { _, port in
            let idle = try (0..<2000).map { _ in try TestClient(port: port) }
            let client = try TestClient(port: port)
            for _ in 0..<100 {
                try client.send(request("GET", "/now"))
                #expect(try client.response().status == 200)
            }
            for client in [idle.first, idle.last] {
                try client?.send(request("GET", "/now"))
                #expect(try client?.response().status == 200)
            }
        }
    }

    @Test func `A large body is streamed with pauses`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            let length = 3_000_000
            try client.send(request("POST", "/upload", "Content-Length: \(length)"))
            try client.send(Array(repeating: 65, count: length))
            #expect(try client.response().body == "\(length)")
            try client.send(request("GET", "/now"))
            #expect(try client.response().body == "now")
        }
    }

    @Test func `Many small chunks are joined in linear time`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            let count = 200_000
            let chunks = String(repeating: "1\r\na\r\n", count: count) + "0\r\n\r\n"
            let start = ContinuousClock.now
            try client.send(request("POST", "/echo", "Transfer-Encoding: chunked", body: chunks))
            #expect(try client.response().body.utf8.count == count)
            #expect(ContinuousClock.now - start < .seconds(20))
        }
    }

    // MARK: Fields

    @Test func `A stream that has nothing yet is asked again`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            // With HTTP/1.0 the body has no chunks and ends with the connection.
            try client.send("GET /hesitant HTTP/1.0\r\n\r\n")
            let text = try client.rest()
            #expect(text.hasSuffix("\r\n\r\nAAAAAAAAAA"))
        }
    }

    @Test func `A request ID is echoed or made`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/now", "X-Request-Id: mine-1"))
            #expect(TestClient.field("X-Request-Id", of: try client.response().head) == "mine-1")
            var ids: Set<String> = []
            for unusable in ["", "two words", String(repeating: "x", count: 129)] {
                try client.send(request("GET", "/now", "X-Request-Id: \(unusable)"))
                ids.insert(try #require(TestClient.field("X-Request-Id", of: try client.response().head)))
            }
            #expect(ids.count == 3)
            #expect(ids.allSatisfy { $0.utf8.count >= 10 && !$0.hasPrefix("xx") })
        }
    }

    @Test func `What the client has is not sent again`() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/tagged"))
            let tag = try #require(TestClient.field("ETag", of: try client.response().head))
            try client.send(request("GET", "/tagged", "If-None-Match: \(tag)") + request("GET", "/now"))
            #expect(try client.response().status == 304)
            #expect(try client.response().body == "now")
        }
    }

    @Test(
        arguments: [
            ("OPTIONS", "*", 204, nil), ("OPTIONS", "/now", 204, "GET, HEAD, OPTIONS"),
            ("PUT", "/now", 405, "GET, HEAD, OPTIONS"),
            ("GET", "/nowhere", 404, nil), ("HEAD", "/nowhere", 404, nil),
        ] as [(String, String, Int, String?)])
    func `A request without a route gets a response`(_ method: String, path: String, status: Int, allow: String?) throws
    {
        try withServer(eventLoops: 1) { _, port in
            let client = try TestClient(port: port)
            try client.send(request(method, path, "Connection: close"))
            client.finishSending()
            let response = try client.rest()
            #expect(response.hasPrefix("HTTP/1.1 \(status) "))
            #expect(TestClient.field("Allow", of: response) == allow)
        }
    }

    @Test(arguments: [
        (request("GET", "/nowhere"), 404, "path(\"/nowhere\")"), (request("PUT", "/now"), 405, "route(0)"),
        (request("PATCH", "/number/7"), 405, "route(2)"),
        (request("POST", "/echo", "Content-Length: 11"), 413, "route(1)"),
        (request("POST", "/nowhere", "Content-Length: 11"), 413, "path(\"/nowhere\")"),
        (request("POST", "/echo", "Content-Length: 5", body: "ab"), 408, "route(1)"),
        (request("POST", "/upload", "Content-Length: 5", body: "ab"), 408, "route(8)"),
        (request("POST", "/upload", "Transfer-Encoding: chunked", body: "x\r\n"), 400, "route(8)"),
        ("GET / HTTP/3.0\r\n\r\n", 505, "none"), ("GET /now HT", 408, "none"),
    ])
    func `The application is told which path a refused request is for`(_ text: String, status: Int, location: String)
        throws
    {
        var limits = Limits()
        limits.bodyBytes = 10
        limits.headerSeconds = 0.1
        limits.bodySeconds = 0.1
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port)
            try client.send(text)
            let response = try client.response()
            #expect(response.status == status)
            #expect(TestClient.field("X-Location", of: response.head) == location)
        }
    }

    // MARK: Descriptors

    /// Raises it for the rest of the process: lowering it again could break tests that run at the same time.
    private func raiseDescriptorLimit(to wanted: rlim_t) throws {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        try #require(limit.rlim_max >= wanted)
        if limit.rlim_cur < wanted {
            limit.rlim_cur = wanted
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        }
    }
}
