import Testing

@testable import HTTPServer

@Suite struct ResponseQueueTests {
    @Test func `A response to HEAD has no body`() {
        let driver = MachineDriver()
        driver.receive(request("HEAD", "/now") + get("/now/2"))
        let output = driver.takeOutput()
        #expect(output.contains("Content-Length: 4\r\n"))
        #expect(output.components(separatedBy: "\r\n\r\n").dropFirst().first?.hasPrefix("HTTP/1.1 200") == true)
    }

    @Test func `A stream is sent in chunks`() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/now"))
        driver.respond(to: "/a", Response(.ok, body: .stream(EmptyStream())))
        #expect(driver.pullsStream())
        #expect(!driver.pullsStream())
        driver.write("hello", to: "/a")
        driver.write("", to: "/a")
        #expect(driver.pullsStream())
        driver.finish("/a")
        let parts = driver.takeOutput().components(separatedBy: "\r\n\r\n")
        #expect(parts[0].contains("Transfer-Encoding: chunked"))
        #expect(!parts[0].contains("Content-Length"))
        #expect(parts[1] == "5\r\nhello\r\n0")
        #expect(parts[2].hasPrefix("HTTP/1.1 200 OK"))
    }

    @Test func `A stream that fails before its first piece becomes an error`() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/now"))
        driver.respond(to: "/a", Response(.ok, body: .stream(EmptyStream())))
        #expect(driver.takeOutput().isEmpty)
        #expect(driver.fail("/a", Response(.serviceUnavailable, text: "broken")))
        let output = driver.takeOutput()
        #expect(output.hasPrefix("HTTP/1.1 503 "))
        #expect(output.contains("broken") && !output.contains("chunked"))
        #expect(driver.completed == [503, 200])
    }

    @Test func `A stream that fails later is cut and counted`() {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        driver.respond(to: "/a", Response(.ok, body: .stream(EmptyStream())))
        driver.write("piece", to: "/a")
        _ = driver.takeOutput()
        #expect(!driver.fail("/a", Response(.serviceUnavailable, text: "broken")))
        driver.abandon()
        #expect(driver.takeOutput().isEmpty)
        #expect(driver.completed == [200])
    }

    enum End: CaseIterable {
        case finished, failed, cutOff, abandoned
    }

    @Test(arguments: End.allCases) func `A stream is released when its response ends`(_ end: End) {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        weak var stream: EmptyStream?
        do {
            let source = EmptyStream()
            stream = source
            driver.respond(to: "/a", Response(.ok, body: .stream(source)))
        }
        #expect(driver.pullsStream())
        #expect(stream != nil)
        if end != .failed { driver.write("piece", to: "/a") }
        switch end {
        case .finished: driver.finish("/a")
        case .failed: #expect(driver.fail("/a", Response(.serviceUnavailable)))
        case .cutOff:
            #expect(!driver.fail("/a", Response(.serviceUnavailable)))
            driver.abandon()
        case .abandoned: driver.abandon()
        }
        #expect(stream == nil)
    }

    @Test func `An HTTP/1.0 client reads a stream to the end of the connection`() {
        let driver = MachineDriver()
        driver.receive("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        driver.respond(to: "/a", Response(.ok, body: .stream(EmptyStream())))
        driver.write("hello", to: "/a")
        driver.finish("/a")
        let output = driver.takeOutput()
        #expect(output.hasSuffix("Connection: close\r\n\r\nhello"))
        #expect(!output.contains("chunked"))
        #expect(driver.isDone)
    }

    @Test func `A stream is not asked for more than there is room for`() {
        var limits = Limits()
        limits.bufferedOutputBytes = 1000
        let driver = MachineDriver(limits)
        driver.receive(get("/a"))
        driver.respond(to: "/a", Response(.ok, body: .stream(EmptyStream())))
        #expect(driver.pullsStream())
        driver.write(String(repeating: "x", count: 1000), to: "/a")
        #expect(!driver.pullsStream())
        _ = driver.takeOutput()
        #expect(driver.pullsStream())
    }

    @Test(arguments: [
        ("\"000000000000002a\"", true), ("W/\"000000000000002a\"", true), ("\"x\", \"000000000000002a\"", true),
        ("*", true), ("\"000000000000002b\"", false), ("000000000000002a", false),
    ])
    func `What the client has is not sent again`(_ condition: String, isUnchanged: Bool) {
        for body in [Response.Body.bytes(Array("body".utf8)), .stream(EmptyStream())] {
            let driver = MachineDriver()
            driver.receive(get("/a", "If-None-Match: \(condition)"))
            driver.respond(to: "/a", Response(.ok, contentType: "text/plain", entityTag: EntityTag(42), body: body))
            driver.write("", to: "/a")
            let output = driver.takeOutput()
            #expect(output.hasPrefix("HTTP/1.1 304 Not Modified\r\n") == isUnchanged)
            #expect(output.contains("ETag: \"000000000000002a\"\r\n"))
            if isUnchanged {
                #expect(!output.contains("Content-Type") && !output.contains("Transfer-Encoding"))
                #expect(output.hasSuffix("\r\n\r\n"))
                #expect(driver.completed == [304])
                #expect(driver.isIdle)
            }
        }
    }

    @Test func `A field with a control character is not sent`() {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        var response = Response(.noContent)
        response.fields = [("X-Bad", "a\r\nSet-Cookie: b"), ("X-Good", "a b")]
        driver.respond(to: "/a", response)
        #expect(
            driver.takeOutput() == "HTTP/1.1 204 No Content\r\nDate: now\r\nX-Good: a b\r\nX-Request-Id: id\r\n\r\n")
    }
}
