import Testing

@testable import HTTPServer

@Suite struct DeadlineTests {
    @Test func `Each thing is waited for as long as its limit says`() {
        let driver = MachineDriver()
        #expect(driver.deadline == (.idle, 75))
        driver.pass(seconds: 20)
        driver.receive("GET /a HT")
        #expect(driver.deadline == (.header, 10))
        driver.pass(seconds: 4)
        driver.receive("TP/1.1\r\n")
        #expect(driver.deadline == (.header, 6))
        driver.receive("Host: a\r\n\r\n")
        #expect(driver.deadline == (.response, 60))
        driver.pass(seconds: 10)
        driver.respond(to: "/a")
        #expect(driver.deadline.reason == .write)
        _ = driver.takeOutput()
        #expect(driver.deadline == (.idle, 75))
        driver.receive(request("POST", "/now", "Content-Length: 5", body: "ab"))
        #expect(driver.deadline == (.body, 30))
        driver.pass(seconds: 5)
        driver.receive("c")
        #expect(driver.deadline == (.body, 25))
    }

    @Test func `A streamed body is given time from piece to piece`() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/stream", "Content-Length: 5", body: "ab"))
        driver.pass(seconds: 20)
        driver.receive("c")
        #expect(driver.deadline == (.body, 30))
        driver.pass(seconds: 300)
        driver.receive("de")
        #expect(driver.deadline == (.response, 60))
    }

    @Test func `The body of a request that had to wait has its whole time`() {
        let driver = MachineDriver()
        driver.receive(get("/a") + request("POST", "/now", "Content-Length: 5", body: "ab"))
        driver.pass(seconds: 40)
        driver.respond(to: "/a")
        _ = driver.takeOutput()
        #expect(driver.deadline == (.body, 30))
    }

    @Test func `A long stream is waited for from piece to piece`() {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        driver.respond(to: "/a", Response(.ok, body: .stream(EmptyStream())))
        for _ in 0..<5 {
            driver.pass(seconds: 50)
            driver.write("piece", to: "/a")
            _ = driver.takeOutput()
            #expect(driver.deadline == (.response, 60))
        }
    }

    @Test func `A peer is not blamed for the pause of its body`() {
        let driver = MachineDriver()
        driver.pausesAfterEachPiece = true
        driver.receive(request("POST", "/stream", "Content-Length: 4", body: "ab"))
        driver.pass(seconds: 40)
        driver.machine.resumeBody(now: driver.now)
        #expect(driver.deadline == (.body, 30))
    }

    @Test func `A request that is too slow is refused`() {
        let driver = MachineDriver()
        driver.receive("GET /a HT")
        let refusal = driver.machine.timedOut(.header)
        #expect(refusal.status == .requestTimeout)
        driver.receive("TP/1.1\r\n\r\n")
        #expect(driver.seen.isEmpty)
    }

    @Test(arguments: [["\r\n"], ["\r", "\n"], ["\r\n\r\n", "\r\n"]])
    func `An empty line behind a body begins no request`(pieces: [String]) {
        let driver = MachineDriver()
        driver.receive(post("/now", body: "x"))
        #expect(driver.takeResponses() == ["/now"])
        driver.pass(seconds: 5)
        for piece in pieces { driver.receive(piece) }
        #expect(driver.deadline.reason == .idle)
        #expect(driver.deadline.seconds == 70)
        #expect(driver.isIdle)
        #expect(!driver.mustLinger)
        driver.receive(get("/now/2"))
        #expect(driver.takeResponses() == ["/now/2"])
    }

    @Test(arguments: ["\r\n", "\r"]) func `A client that ends with an empty line has nothing more to ask`(end: String) {
        let driver = MachineDriver()
        driver.receive(get("/now") + end)
        driver.endInput()
        #expect(driver.takeResponses() == ["/now"])
        #expect(driver.isDone)
    }
}
