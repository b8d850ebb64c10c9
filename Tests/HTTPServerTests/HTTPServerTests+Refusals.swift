import Testing

@testable import HTTPServer

/// Requests that are refused before a handler gets them, and conditions that the server checks itself.
extension HTTPServerTests {
    @Test(arguments: [
        // Route 0 has matched.
        (request("GET", "/now", "Origin: me"), 200, "me at 0"),
        (request("GET", "/now"), 200, "nobody at 0"),
        (request("GET", "/nowhere", "Origin: me"), 404, "me at -"),
        (request("PUT", "/now", "Origin: me"), 405, "me at -"),
        (request("OPTIONS", "/nowhere", "Origin: me"), 404, "me at -"),
        (request("POST", "/echo", "Origin: me", "Content-Length: 99999999"), 413, "me at 1"),
        (request("POST", "/echo", "Origin: me", "Transfer-Encoding: chunked", body: "x\r\n"), 400, "me at 1"),
        // Only the beginning of the header is known.
        (request("GET", "/now", "Origin: me", "bad line"), 400, "me at -"),
        (request("GET", "/now", "Origin: me", "X: " + String(repeating: "x", count: 20_000)), 431, "me at -"),
        (request("GET", "/now", "X: " + String(repeating: "x", count: 20_000), "Origin: me"), 431, "nobody at -"),
        (request("GET", "/" + String(repeating: "x", count: 20_000), "Origin: me"), 414, "nobody at -"),
        (request("BREW", "/now", "Origin: me"), 501, "nobody at -"),
    ])
    func theOriginIsKnownAsSoonAsItIsRead(_ request: String, status: Int, field: String) throws {
        try withServer(eventLoops: 1) { _, port in
            let client = try TestClient(port: port)
            try client.send(request)
            let response = try client.response()
            #expect(response.status == status)
            #expect(TestClient.field("X-For", of: response.head) == field)
        }
    }

    @Test func `A header that comes too slowly is refused with its origin`() throws {
        var limits = Limits()
        limits.headerSeconds = 0.2
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port)
            try client.send("GET /now HTTP/1.1\r\nOrigin: me\r\nHo")
            let response = try client.response()
            #expect(response.status == 408)
            #expect(TestClient.field("X-For", of: response.head) == "me at -")
        }
    }

    // MARK: 100 (Continue)

    @Test(arguments: [
        ("POST", "/nowhere", 404), ("POST", "/now", 405), ("POST", "/refused", 401),
    ])
    func `A client that waits is refused before it sends its body`(_ method: String, _ path: String, status: Int) throws
    {
        try withServer(eventLoops: 1) { _, port in
            let client = try TestClient(port: port)
            try client.send(
                request(method, path, "Content-Length: 2", "Expect: 100-continue", "X-Request-Id: mine"))
            let response = try client.response()
            #expect(response.status == status)
            #expect(TestClient.field("X-Request-Id", of: response.head) == "mine")
            if status == 401 { #expect(response.body == "mine") }
            #expect(TestClient.field("Connection", of: response.head) == "close")
            // The client may send its body nevertheless. It is not taken for a request.
            try client.send("ab")
            #expect(try client.rest().isEmpty)
        }
    }

    @Test func `A client that does not wait gets its refusal on a connection that stays open`() throws {
        try withServer(eventLoops: 1) { _, port in
            let client = try TestClient(port: port)
            try client.send(request("POST", "/nowhere", "Content-Length: 2", "Expect: 100-continue", body: "ab"))
            #expect(try client.response().status == 404)
            try client.send(request("POST", "/refused", "Content-Length: 2", "Expect: 100-continue", "X-Secret: s"))
            #expect(try client.response().status == 100)
            try client.send("ab")
            #expect(try client.response().body == "2")
        }
    }

    // MARK: Conditions

    @Test(
        arguments: [
            ([], 200), (["If-Match: *"], 200), (["If-Match: TAG"], 200), (["If-Match: \"x\" , TAG "], 200),
            (["If-Match: \"x\"", "If-Match: TAG"], 200), (["If-Match: \"x,TAG\""], 412),
            (["If-Match: \"x\""], 412), (["If-Match: W/TAG"], 412), (["If-Match: TAGx"], 412),
            (["If-Match: TAG", "If-None-Match: TAG"], 304), (["If-Match: \"x\"", "If-None-Match: TAG"], 412),
            (["If-None-Match: W/TAG"], 304), (["If-None-Match: TAGx"], 200),
        ] as [([String], Int)])
    func `The conditions of a read are checked in their order`(_ fields: [String], status: Int) throws {
        let lines = fields.map { $0.replacing("TAG", with: EntityTag(1).text) + "\r\n" }.joined()
        try withServer(eventLoops: 1) { _, port in
            for method in ["GET", "HEAD"] {
                let client = try TestClient(port: port)
                try client.send("\(method) /tagged HTTP/1.1\r\nHost: a\r\n\(lines)Connection: close\r\n\r\n")
                let response = try client.rest()
                #expect(response.hasPrefix("HTTP/1.1 \(status) "))
                #expect(response.contains("ETag: ") == (status != 412))
                #expect(response.contains("X-Location: route(5)\r\n") == (status == 412))
                #expect(response.hasSuffix("\r\n\r\n") == (method == "HEAD" || status == 304))
            }
        }
    }
}
