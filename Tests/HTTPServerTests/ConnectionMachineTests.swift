import TestSupport
import Testing

@testable import HTTPServer

@Suite struct ConnectionMachineTests {
    // MARK: Order

    @Test func `Late responses are written in the order of the requests`() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/now") + get("/b") + get("/c"))
        #expect(driver.seen.map(\.path) == ["/a", "/now", "/b", "/c"])
        driver.respond(to: "/c")
        driver.respond(to: "/b")
        #expect(driver.takeOutput().isEmpty)
        driver.respond(to: "/a")
        #expect(driver.takeResponses() == ["/a", "/now", "/b", "/c"])
        #expect(driver.isIdle)
    }

    @Test func `A second response to one request is dropped`() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/b"))
        driver.respond(to: "/b")
        driver.respond(to: "/b", Response(.notFound))
        driver.respond(to: "/a")
        driver.respond(to: "/a")
        driver.respond(to: "/b")
        #expect(driver.takeResponses() == ["/a", "/b"])
    }

    @Test func `A request that may change something holds those behind it`() {
        let driver = MachineDriver()
        driver.receive(post("/save", body: "x") + get("/now/1") + get("/now/2"))
        #expect(driver.seen.map(\.path) == ["/save"])
        driver.respond(to: "/save")
        #expect(driver.seen.map(\.path) == ["/save", "/now/1", "/now/2"])
        #expect(driver.takeResponses() == ["/save", "/now/1", "/now/2"])
    }

    @Test func `A request with a body waits for earlier responses`() {
        let driver = MachineDriver()
        driver.receive(get("/a") + post("/now", body: "x"))
        #expect(driver.seen.map(\.path) == ["/a"])
        #expect(!driver.wantsInput)
        driver.respond(to: "/a")
        #expect(driver.seen == [.init(path: "/a", body: ""), .init(path: "/now", body: "x")])
        #expect(driver.takeResponses() == ["/a", "/now"])
    }

    @Test func `A response between iterations lets the next requests go on`() {
        let driver = MachineDriver()
        driver.receive(post("/save", body: "x") + get("/now"))
        driver.machine.responses.add(Response(.ok), to: 0)
        #expect(driver.machine.responses.writeNext(date: []) != nil)
        #expect(driver.mayGoOn)
        #expect(!driver.isDone)
        driver.run()
        #expect(driver.seen.map(\.path) == ["/save", "/now"])
    }

    @Test func `No more than the limit of requests wait at once`() {
        var limits = Limits()
        limits.pipelinedRequests = 3
        let driver = MachineDriver(limits)
        driver.receive((0..<5).map { get("/\($0)") }.joined())
        #expect(driver.seen.count == 3)
        #expect(!driver.wantsInput)
        driver.respond(to: "/0")
        #expect(driver.seen.count == 4)
    }

    @Test func `Requests stay unread while too many responses are unsent`() {
        var limits = Limits()
        limits.bufferedOutputBytes = 300
        let driver = MachineDriver(limits)
        driver.receive((0..<20).map { get("/now/\($0)") }.joined())
        var responses: [String] = []
        while driver.unsent > 0 {
            #expect(driver.unsent < 600)
            #expect(!driver.wantsInput || driver.seen.count == 20)
            responses += driver.takeResponses()
            driver.run()
        }
        #expect(responses == (0..<20).map { "/now/\($0)" })
    }

    @Test func `Responses that wait for an earlier one are bounded in bytes`() {
        var limits = Limits()
        limits.bufferedOutputBytes = 300
        let driver = MachineDriver(limits)
        let large = (0..<20).map { "/now/\($0)" + String(repeating: "x", count: 100) }
        driver.receive(get("/slow") + large.map { get($0) }.joined())
        #expect(driver.seen.count == 4)
        #expect(!driver.wantsInput)
        #expect(!driver.mayGoOn)
        driver.respond(to: "/slow")
        var responses: [String] = []
        while driver.unsent > 0 {
            responses += driver.takeResponses()
            driver.run()
        }
        #expect(responses == ["/slow"] + large)
    }

    @Test func `A response longer than may wait is sent`() {
        var limits = Limits()
        limits.bufferedOutputBytes = 300
        let driver = MachineDriver(limits)
        driver.receive(get("/slow") + get("/long") + get("/now"))
        let long = String(repeating: "x", count: 100_000)
        driver.respond(to: "/long", Response(.ok, text: long))
        driver.respond(to: "/slow")
        #expect(driver.takeResponses() == ["/slow", long, "/now"])
        #expect(driver.wantsInput)
    }

    @Test func `Fields kept of requests that wait are bounded in bytes`() {
        var limits = Limits()
        limits.bufferedOutputBytes = 3_000
        let driver = MachineDriver(limits)
        let tags = String(repeating: "x", count: 1_000)
        driver.receive((0..<10).map { get("/\($0)", "If-None-Match: \(tags)") }.joined())
        #expect(driver.seen.count == 3)
        driver.respond(to: "/0")
        _ = driver.takeOutput()
        driver.run()
        #expect(driver.seen.count == 4)
    }

    @Test func `No request is read while a stream is open`() {
        final class Silent: ResponseStream {
            func produce(_ writer: StreamWriter) {}
        }
        let driver = MachineDriver()
        driver.receive(get("/a"))
        driver.respond(to: "/a", Response(.ok, body: .stream(Silent())))
        driver.receive(get("/now/1") + get("/now/2"))
        #expect(driver.seen.map(\.path) == ["/a"])
        #expect(!driver.wantsInput)
        driver.finish("/a")
        #expect(driver.seen.map(\.path) == ["/a", "/now/1", "/now/2"])
        #expect(driver.wantsInput)
    }

    // MARK: Closing

    @Test func `Nothing is read behind a request to close`() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/b", "Connection: close") + get("/now"))
        #expect(driver.seen.map(\.path) == ["/a", "/b"])
        driver.respond(to: "/b")
        driver.respond(to: "/a")
        #expect(driver.takeOutput().components(separatedBy: "Connection: close").count == 2)
        #expect(driver.isDone)
    }

    @Test func `An HTTP/1.0 client is kept only when it asks for`() {
        let closing = MachineDriver()
        closing.receive("GET /now HTTP/1.0\r\n\r\n")
        #expect(closing.takeOutput().contains("Connection: close\r\n"))
        #expect(closing.isDone)
        let keeping = MachineDriver()
        keeping.receive("GET /now HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        #expect(keeping.takeOutput().contains("Connection: keep-alive\r\n"))
        #expect(keeping.isIdle)
    }

    @Test func `A refusal is sent in order and ends the connection`() {
        let driver = MachineDriver()
        driver.receive(get("/a") + "GET / HTTP/3.0\r\n\r\n" + get("/now"))
        #expect(driver.takeOutput().isEmpty)
        driver.respond(to: "/a")
        #expect(driver.takeResponses() == ["/a", "505"])
        #expect(driver.isDone)
    }

    @Test func `A half closed client gets all its responses`() {
        var limits = Limits()
        limits.bufferedOutputBytes = 300
        let driver = MachineDriver(limits)
        driver.receive((0..<9).map { get("/now/\($0)") }.joined() + post("/save", body: "x") + get("/now/9"))
        driver.endInput()
        var responses: [String] = []
        for _ in 0..<20 {
            responses += driver.takeResponses()
            if driver.seen.last?.path == "/save" { driver.respond(to: "/save") }
            if driver.isDone, driver.unsent == 0 { break }
            driver.run()
        }
        #expect(responses == (0..<9).map { "/now/\($0)" } + ["/save", "/now/9"])
        #expect(driver.isDone)
        #expect(!driver.wantsInput)
    }

    @Test(arguments: ["/now", "/stream"])
    func `A body that ends early is refused`(_ path: String) {
        let driver = MachineDriver()
        driver.receive(request("POST", path, "Content-Length: 5", body: "ab"))
        driver.endInput()
        driver.respond(to: path)
        #expect(driver.completed.last == 400)
        #expect(driver.isDone)
        #expect(driver.seen.isEmpty)
    }

    @Test func `A head that ends early needs no response`() {
        let driver = MachineDriver()
        driver.receive("GET / HT")
        driver.endInput()
        #expect(driver.takeOutput().isEmpty)
        #expect(driver.isDone)
    }

    @Test func `Draining completes what is in flight and says so`() {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        driver.machine.drain()
        #expect(!driver.isDone)
        driver.respond(to: "/a")
        #expect(driver.takeOutput().contains("Connection: close\r\n"))
        #expect(driver.isDone)
    }

    @Test func `Draining lets a request that has begun be completed`() {
        let driver = MachineDriver()
        driver.receive("GET /now HTTP/1.1\r\n")
        driver.machine.drain()
        driver.receive("Host: a\r\n\r\n" + get("/now/2"))
        #expect(driver.takeOutput().components(separatedBy: "Connection: close").count == 2)
        #expect(driver.seen.map(\.path) == ["/now"])
        #expect(driver.isDone)
    }

    // MARK: Random bytes

    @Test(arguments: 0..<6 as Range<UInt64>)
    func `No bytes stop the process`(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let example =
            get("/now") + post("/now", body: "abc")
            + request("POST", "/stream", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n0\r\n\r\n")
            + get("/late") + post("/unwanted", body: "x")
        for _ in 0..<150 {
            var bytes = Array(example.utf8)
            for _ in 0..<Int.random(in: 0...4, using: &random) { bytes.mutate(using: &random) }
            let driver = MachineDriver()
            while !bytes.isEmpty {
                let count = Int.random(in: 1...min(40, bytes.count), using: &random)
                bytes[..<count].withUnsafeBytes { driver.machine.input.append($0) }
                bytes.removeFirst(count)
                driver.run()
                if Bool.random(using: &random) {
                    driver.respond(to: ["/late", "/stream"].randomElement(using: &random) ?? "")
                }
            }
            driver.endInput()
            driver.respond(to: "/stream")
            driver.respond(to: "/late")
            if driver.owesNothing { #expect(driver.isDone) }
        }
    }
}
