import Testing

@testable import HTTPServer

@Suite struct RequestBodyTests {
    // MARK: Bodies

    @Test func `Chunks are joined`() {
        let driver = MachineDriver()
        let chunked = request(
            "POST", "/now", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n2;x=y\r\nde\r\n1\r\nf\r\n0\r\nT: 1\r\n\r\n"
        )
        driver.receive(chunked + get("/now/next"))
        #expect(driver.seen == [.init(path: "/now", body: "abcdef"), .init(path: "/now/next", body: "")])
    }

    @Test func `A request byte by byte is the same request`() {
        let driver = MachineDriver()
        let all =
            request("POST", "/now", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            + post("/now/2", body: "hello") + get("/now/3")
        for byte in all.utf8 { driver.receive(String(UnicodeScalar(byte))) }
        #expect(driver.seen.map(\.body) == ["abcde", "hello", ""])
        #expect(driver.takeResponses() == ["/now", "/now/2", "/now/3"])
    }

    @Test(arguments: [(10, 200), (11, 413)])
    func `A body may be as long as the limit`(_ length: Int, status: UInt16) {
        var limits = Limits()
        limits.bodyBytes = 10
        let body = String(repeating: "x", count: length)
        let fixed = MachineDriver(limits)
        fixed.receive(post("/now", body: body))
        #expect(fixed.completed == [status])
        let chunked = MachineDriver(limits)
        let chunks = body.map { "1\r\n\($0)\r\n" }.joined() + "0\r\n\r\n"
        chunked.receive(request("POST", "/now", "Transfer-Encoding: chunked", body: chunks))
        #expect(chunked.completed == [status])
        #expect(chunked.isDone == (status == 413))
    }

    @Test func `A streamed body comes in pieces`() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/stream", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n2\r\nd"))
        #expect(driver.pieces == ["abc", "d"])
        driver.receive("e\r\n0\r\n\r\n" + get("/now"))
        #expect(driver.seen == [.init(path: "/stream", body: "abcde")])
        driver.respond(to: "/stream")
        #expect(driver.takeResponses() == ["/stream", "/now"])
    }

    @Test func `A paused body is not read until it goes on`() {
        let driver = MachineDriver()
        driver.pausesAfterEachPiece = true
        driver.receive(request("POST", "/stream", "Transfer-Encoding: chunked", body: "1\r\na\r\n1\r\nb\r\n"))
        #expect(driver.pieces == ["a"])
        #expect(!driver.wantsInput)
        driver.machine.resumeBody(now: 0)
        driver.run()
        #expect(driver.pieces == ["a", "b"])
        driver.pausesAfterEachPiece = false
        driver.machine.resumeBody(now: 0)
        #expect(driver.wantsInput)
    }

    @Test func `An unwanted body ends the connection`() {
        let driver = MachineDriver()
        driver.receive(post("/unwanted", body: "x") + get("/now"))
        #expect(driver.takeOutput().contains("403 Forbidden\r\n"))
        #expect(driver.isDone)
        #expect(driver.mustLinger)
        #expect(driver.seen.isEmpty)
    }

    @Test func `An unwanted body that is empty does not`() {
        let driver = MachineDriver()
        driver.receive(get("/unwanted") + get("/now"))
        #expect(driver.takeResponses() == ["403", "/now"])
        #expect(!driver.isDone)
    }

    // MARK: 100 (Continue)

    @Test func `Continue is sent to a client that waits for it`() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/now", "Content-Length: 2", "Expect: 100-continue"))
        #expect(driver.takeOutput() == "HTTP/1.1 100 Continue\r\n\r\n")
        driver.receive("ab")
        #expect(driver.takeResponses() == ["/now"])
    }

    @Test func `Continue is not sent when the body is there`() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/now", "Content-Length: 2", "Expect: 100-continue", body: "ab"))
        #expect(driver.takeResponses() == ["/now"])
    }

    @Test func `Continue does not overtake earlier responses`() {
        let driver = MachineDriver()
        driver.receive(get("/a") + request("POST", "/stream", "Content-Length: 2", "Expect: 100-continue"))
        #expect(driver.takeOutput().isEmpty)
        driver.respond(to: "/a")
        #expect(driver.takeResponses() == ["/a", "100"])
    }

    @Test func `A client is not told to send a body that is too large`() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/now", "Content-Length: 99999999", "Expect: 100-continue"))
        #expect(driver.takeResponses() == ["413"])
    }
}
