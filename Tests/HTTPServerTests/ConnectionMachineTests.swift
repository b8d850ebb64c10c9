import TestSupport
import Testing

@testable import HTTPServer

@Suite struct ConnectionMachineTests {
    private func get(_ path: String, _ fields: String...) -> String {
        "GET \(path) HTTP/1.1\r\nHost: a\r\n" + fields.map { $0 + "\r\n" }.joined() + "\r\n"
    }

    private func post(_ path: String, body: String, _ fields: String...) -> String {
        "POST \(path) HTTP/1.1\r\nHost: a\r\nContent-Length: \(body.utf8.count)\r\n"
            + fields.map { $0 + "\r\n" }.joined() + "\r\n" + body
    }

    // MARK: Order

    @Test func lateAnswersAreWrittenInTheOrderOfTheRequests() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/now") + get("/b") + get("/c"))
        #expect(driver.seen.map(\.path) == ["/a", "/now", "/b", "/c"])
        driver.answer("/c")
        driver.answer("/b")
        #expect(driver.takeOutput().isEmpty)
        driver.answer("/a")
        #expect(driver.takeAnswers() == ["/a", "/now", "/b", "/c"])
        #expect(driver.isIdle)
    }

    @Test func aSecondAnswerToOneRequestIsDropped() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/b"))
        driver.answer("/b")
        driver.answer("/b", Response(.notFound))
        driver.answer("/a")
        driver.answer("/a")
        driver.answer("/b")
        #expect(driver.takeAnswers() == ["/a", "/b"])
    }

    @Test func aRequestThatMayChangeSomethingHoldsThoseBehindIt() {
        let driver = MachineDriver()
        driver.receive(post("/save", body: "x") + get("/now/1") + get("/now/2"))
        #expect(driver.seen.map(\.path) == ["/save"])
        driver.answer("/save")
        #expect(driver.seen.map(\.path) == ["/save", "/now/1", "/now/2"])
        #expect(driver.takeAnswers() == ["/save", "/now/1", "/now/2"])
    }

    @Test func aRequestWithABodyWaitsForEarlierAnswers() {
        let driver = MachineDriver()
        driver.receive(get("/a") + post("/now", body: "x"))
        #expect(driver.seen.map(\.path) == ["/a"])
        #expect(!driver.wantsInput)
        driver.answer("/a")
        #expect(driver.seen == [.init(path: "/a", body: ""), .init(path: "/now", body: "x")])
        #expect(driver.takeAnswers() == ["/a", "/now"])
    }

    @Test func anAnswerThatComesBetweenTurnsLetsTheNextRequestsGoOn() {
        let driver = MachineDriver()
        driver.receive(post("/save", body: "x") + get("/now"))
        driver.machine.responses.add(Response(.ok), to: 0)
        #expect(driver.machine.responses.writeNext(date: []) != nil)
        #expect(driver.mayGoOn)
        #expect(!driver.isDone)
        driver.run()
        #expect(driver.seen.map(\.path) == ["/save", "/now"])
    }

    @Test func noMoreThanTheLimitOfRequestsWaitAtOnce() {
        var limits = Limits()
        limits.pipelinedRequests = 3
        let driver = MachineDriver(limits)
        driver.receive((0..<5).map { get("/\($0)") }.joined())
        #expect(driver.seen.count == 3)
        #expect(!driver.wantsInput)
        driver.answer("/0")
        #expect(driver.seen.count == 4)
    }

    @Test func requestsStayUnreadWhileTooManyAnswersAreUnsent() {
        var limits = Limits()
        limits.bufferedOutputBytes = 300
        let driver = MachineDriver(limits)
        driver.receive((0..<20).map { get("/now/\($0)") }.joined())
        var answers: [String] = []
        while driver.unsent > 0 {
            #expect(driver.unsent < 600)
            #expect(!driver.wantsInput || driver.seen.count == 20)
            answers += driver.takeAnswers()
            driver.run()
        }
        #expect(answers == (0..<20).map { "/now/\($0)" })
    }

    @Test func responsesThatWaitForAnEarlierOneAreBoundedInBytes() {
        var limits = Limits()
        limits.bufferedOutputBytes = 300
        let driver = MachineDriver(limits)
        let large = (0..<20).map { "/now/\($0)" + String(repeating: "x", count: 100) }
        driver.receive(get("/slow") + large.map { get($0) }.joined())
        #expect(driver.seen.count == 4)
        #expect(!driver.wantsInput)
        #expect(!driver.mayGoOn)
        driver.answer("/slow")
        var answers: [String] = []
        while driver.unsent > 0 {
            answers += driver.takeAnswers()
            driver.run()
        }
        #expect(answers == ["/slow"] + large)
    }

    @Test func aResponseLongerThanMayWaitIsSent() {
        var limits = Limits()
        limits.bufferedOutputBytes = 300
        let driver = MachineDriver(limits)
        driver.receive(get("/slow") + get("/long") + get("/now"))
        let long = String(repeating: "x", count: 100_000)
        driver.answer("/long", Response(.ok, text: long))
        driver.answer("/slow")
        #expect(driver.takeAnswers() == ["/slow", long, "/now"])
        #expect(driver.wantsInput)
    }

    @Test func fieldsKeptOfRequestsThatWaitAreBoundedInBytes() {
        var limits = Limits()
        limits.bufferedOutputBytes = 3_000
        let driver = MachineDriver(limits)
        let tags = String(repeating: "x", count: 1_000)
        driver.receive((0..<10).map { get("/\($0)", "If-None-Match: \(tags)") }.joined())
        #expect(driver.seen.count == 3)
        driver.answer("/0")
        _ = driver.takeOutput()
        driver.run()
        #expect(driver.seen.count == 4)
    }

    @Test func noRequestIsReadWhileAStreamIsOpen() {
        final class Silent: ResponseStream {
            func produce(_ writer: StreamWriter) {}
        }
        let driver = MachineDriver()
        driver.receive(get("/a"))
        driver.answer("/a", Response(.ok, body: .stream(Silent())))
        driver.receive(get("/now/1") + get("/now/2"))
        #expect(driver.seen.map(\.path) == ["/a"])
        #expect(!driver.wantsInput)
        driver.finish("/a")
        #expect(driver.seen.map(\.path) == ["/a", "/now/1", "/now/2"])
        #expect(driver.wantsInput)
    }

    // MARK: Bodies

    @Test func chunksAreJoined() {
        let driver = MachineDriver()
        let chunked = request(
            "POST", "/now", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n2;x=y\r\nde\r\n1\r\nf\r\n0\r\nT: 1\r\n\r\n")
        driver.receive(chunked + get("/now/next"))
        #expect(driver.seen == [.init(path: "/now", body: "abcdef"), .init(path: "/now/next", body: "")])
    }

    @Test func aRequestByteByByteIsTheSameRequest() {
        let driver = MachineDriver()
        let all = request("POST", "/now", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            + post("/now/2", body: "hello") + get("/now/3")
        for byte in all.utf8 { driver.receive(String(UnicodeScalar(byte))) }
        #expect(driver.seen.map(\.body) == ["abcde", "hello", ""])
        #expect(driver.takeAnswers() == ["/now", "/now/2", "/now/3"])
    }

    @Test(arguments: [(10, 200), (11, 413)])
    func aBodyMayBeAsLongAsTheLimit(_ length: Int, status: UInt16) {
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

    @Test func aStreamedBodyComesInPieces() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/stream", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n2\r\nd"))
        #expect(driver.pieces == ["abc", "d"])
        driver.receive("e\r\n0\r\n\r\n" + get("/now"))
        #expect(driver.seen == [.init(path: "/stream", body: "abcde")])
        driver.answer("/stream")
        #expect(driver.takeAnswers() == ["/stream", "/now"])
    }

    @Test func aPausedBodyIsNotReadUntilItGoesOn() {
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

    @Test func anUnwantedBodyEndsTheConnection() {
        let driver = MachineDriver()
        driver.receive(post("/unwanted", body: "x") + get("/now"))
        #expect(driver.takeOutput().contains("403 Forbidden\r\n"))
        #expect(driver.isDone)
        #expect(driver.mustLinger)
        #expect(driver.seen.isEmpty)
    }

    @Test func anUnwantedBodyThatIsEmptyDoesNot() {
        let driver = MachineDriver()
        driver.receive(get("/unwanted") + get("/now"))
        #expect(driver.takeAnswers() == ["403", "/now"])
        #expect(!driver.isDone)
    }

    // MARK: 100 (Continue)

    @Test func continueIsSentToAClientThatWaitsForIt() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/now", "Content-Length: 2", "Expect: 100-continue"))
        #expect(driver.takeOutput() == "HTTP/1.1 100 Continue\r\n\r\n")
        driver.receive("ab")
        #expect(driver.takeAnswers() == ["/now"])
    }

    @Test func continueIsNotSentWhenTheBodyIsThere() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/now", "Content-Length: 2", "Expect: 100-continue", body: "ab"))
        #expect(driver.takeAnswers() == ["/now"])
    }

    @Test func continueDoesNotOvertakeEarlierAnswers() {
        let driver = MachineDriver()
        driver.receive(get("/a") + request("POST", "/stream", "Content-Length: 2", "Expect: 100-continue"))
        #expect(driver.takeOutput().isEmpty)
        driver.answer("/a")
        #expect(driver.takeAnswers() == ["/a", "100"])
    }

    @Test func aClientIsNotToldToSendABodyThatIsTooLarge() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/now", "Content-Length: 99999999", "Expect: 100-continue"))
        #expect(driver.takeAnswers() == ["413"])
    }

    // MARK: Closing

    @Test func nothingIsReadBehindARequestToClose() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/b", "Connection: close") + get("/now"))
        #expect(driver.seen.map(\.path) == ["/a", "/b"])
        driver.answer("/b")
        driver.answer("/a")
        #expect(driver.takeOutput().components(separatedBy: "Connection: close").count == 2)
        #expect(driver.isDone)
    }

    @Test func anHTTP10ClientIsKeptOnlyWhenItAsksFor() {
        let closing = MachineDriver()
        closing.receive("GET /now HTTP/1.0\r\n\r\n")
        #expect(closing.takeOutput().contains("Connection: close\r\n"))
        #expect(closing.isDone)
        let keeping = MachineDriver()
        keeping.receive("GET /now HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        #expect(keeping.takeOutput().contains("Connection: keep-alive\r\n"))
        #expect(keeping.isIdle)
    }

    @Test func aRefusalIsAnsweredInItsTurnAndEndsTheConnection() {
        let driver = MachineDriver()
        driver.receive(get("/a") + "GET / HTTP/3.0\r\n\r\n" + get("/now"))
        #expect(driver.takeOutput().isEmpty)
        driver.answer("/a")
        #expect(driver.takeAnswers() == ["/a", "505"])
        #expect(driver.isDone)
    }

    @Test func aHalfClosedClientGetsAllItsAnswers() {
        var limits = Limits()
        limits.bufferedOutputBytes = 300
        let driver = MachineDriver(limits)
        driver.receive((0..<9).map { get("/now/\($0)") }.joined() + post("/save", body: "x") + get("/now/9"))
        driver.endInput()
        var answers: [String] = []
        for _ in 0..<20 {
            answers += driver.takeAnswers()
            if driver.seen.last?.path == "/save" { driver.answer("/save") }
            if driver.isDone, driver.unsent == 0 { break }
            driver.run()
        }
        #expect(answers == (0..<9).map { "/now/\($0)" } + ["/save", "/now/9"])
        #expect(driver.isDone)
        #expect(!driver.wantsInput)
    }

    @Test(arguments: ["/now", "/stream"])
    func aBodyThatEndsEarlyIsRefused(_ path: String) {
        let driver = MachineDriver()
        driver.receive(request("POST", path, "Content-Length: 5", body: "ab"))
        driver.endInput()
        driver.answer(path)
        #expect(driver.completed.last == 400)
        #expect(driver.isDone)
        #expect(driver.seen.isEmpty)
    }

    @Test func aHeadThatEndsEarlyNeedsNoAnswer() {
        let driver = MachineDriver()
        driver.receive("GET / HT")
        driver.endInput()
        #expect(driver.takeOutput().isEmpty)
        #expect(driver.isDone)
    }

    @Test func drainingAnswersWhatIsInFlightAndSaysSo() {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        driver.machine.drain()
        #expect(!driver.isDone)
        driver.answer("/a")
        #expect(driver.takeOutput().contains("Connection: close\r\n"))
        #expect(driver.isDone)
    }

    @Test func drainingLetsARequestThatHasBegunBeCompleted() {
        let driver = MachineDriver()
        driver.receive("GET /now HTTP/1.1\r\n")
        driver.machine.drain()
        driver.receive("Host: a\r\n\r\n" + get("/now/2"))
        #expect(driver.takeOutput().components(separatedBy: "Connection: close").count == 2)
        #expect(driver.seen.map(\.path) == ["/now"])
        #expect(driver.isDone)
    }

    // MARK: Deadlines

    @Test func eachThingIsWaitedForAsLongAsItsLimitSays() {
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
        driver.answer("/a")
        #expect(driver.deadline.reason == .write)
        _ = driver.takeOutput()
        #expect(driver.deadline == (.idle, 75))
        driver.receive(request("POST", "/now", "Content-Length: 5", body: "ab"))
        #expect(driver.deadline == (.body, 30))
        driver.pass(seconds: 5)
        driver.receive("c")
        #expect(driver.deadline == (.body, 25))
    }

    @Test func aStreamedBodyIsGivenTimeFromPieceToPiece() {
        let driver = MachineDriver()
        driver.receive(request("POST", "/stream", "Content-Length: 5", body: "ab"))
        driver.pass(seconds: 20)
        driver.receive("c")
        #expect(driver.deadline == (.body, 30))
        driver.pass(seconds: 300)
        driver.receive("de")
        #expect(driver.deadline == (.response, 60))
    }

    @Test func theBodyOfARequestThatHadToWaitHasItsWholeTime() {
        let driver = MachineDriver()
        driver.receive(get("/a") + request("POST", "/now", "Content-Length: 5", body: "ab"))
        driver.pass(seconds: 40)
        driver.answer("/a")
        _ = driver.takeOutput()
        #expect(driver.deadline == (.body, 30))
    }

    @Test func aLongStreamIsWaitedForFromPieceToPiece() {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        driver.answer("/a", Response(.ok, body: .stream(EmptyStream())))
        for _ in 0..<5 {
            driver.pass(seconds: 50)
            driver.write("piece", to: "/a")
            _ = driver.takeOutput()
            #expect(driver.deadline == (.response, 60))
        }
    }

    @Test func aPeerIsNotBlamedForThePauseOfItsBody() {
        let driver = MachineDriver()
        driver.pausesAfterEachPiece = true
        driver.receive(request("POST", "/stream", "Content-Length: 4", body: "ab"))
        driver.pass(seconds: 40)
        driver.machine.resumeBody(now: driver.now)
        #expect(driver.deadline == (.body, 30))
    }

    @Test func aRequestThatIsTooSlowIsRefused() {
        let driver = MachineDriver()
        driver.receive("GET /a HT")
        let refusal = driver.machine.timedOut(.header)
        #expect(refusal.status == .requestTimeout)
        driver.receive("TP/1.1\r\n\r\n")
        #expect(driver.seen.isEmpty)
    }

    @Test(arguments: [["\r\n"], ["\r", "\n"], ["\r\n\r\n", "\r\n"]])
    func anEmptyLineBehindABodyBeginsNoRequest(pieces: [String]) {
        let driver = MachineDriver()
        driver.receive(post("/now", body: "x"))
        #expect(driver.takeAnswers() == ["/now"])
        driver.pass(seconds: 5)
        for piece in pieces { driver.receive(piece) }
        #expect(driver.deadline.reason == .idle)
        #expect(driver.deadline.seconds == 70)
        #expect(driver.isIdle)
        #expect(!driver.mustLinger)
        driver.receive(get("/now/2"))
        #expect(driver.takeAnswers() == ["/now/2"])
    }

    @Test(arguments: ["\r\n", "\r"]) func aClientThatEndsWithAnEmptyLineHasNothingMoreToAsk(end: String) {
        let driver = MachineDriver()
        driver.receive(get("/now") + end)
        driver.endInput()
        #expect(driver.takeAnswers() == ["/now"])
        #expect(driver.isDone)
    }

    // MARK: Responses

    @Test func headIsAnsweredWithoutABody() {
        let driver = MachineDriver()
        driver.receive(request("HEAD", "/now") + get("/now/2"))
        let output = driver.takeOutput()
        #expect(output.contains("Content-Length: 4\r\n"))
        #expect(output.components(separatedBy: "\r\n\r\n").dropFirst().first?.hasPrefix("HTTP/1.1 200") == true)
    }

    @Test func aStreamIsSentInChunks() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/now"))
        driver.answer("/a", Response(.ok, body: .stream(EmptyStream())))
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

    @Test func aStreamThatFailsBeforeItsFirstPieceIsAnsweredByAnError() {
        let driver = MachineDriver()
        driver.receive(get("/a") + get("/now"))
        driver.answer("/a", Response(.ok, body: .stream(EmptyStream())))
        #expect(driver.takeOutput().isEmpty)
        #expect(driver.fail("/a", Response(.serviceUnavailable, text: "broken")))
        let output = driver.takeOutput()
        #expect(output.hasPrefix("HTTP/1.1 503 "))
        #expect(output.contains("broken") && !output.contains("chunked"))
        #expect(driver.completed == [503, 200])
    }

    @Test func aStreamThatFailsLaterIsCutAndCounted() {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        driver.answer("/a", Response(.ok, body: .stream(EmptyStream())))
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

    @Test(arguments: End.allCases) func aStreamIsReleasedWhenItsResponseEnds(_ end: End) {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        weak var stream: EmptyStream?
        do {
            let source = EmptyStream()
            stream = source
            driver.answer("/a", Response(.ok, body: .stream(source)))
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

    @Test func anHTTP10ClientReadsAStreamToTheEndOfTheConnection() {
        let driver = MachineDriver()
        driver.receive("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        driver.answer("/a", Response(.ok, body: .stream(EmptyStream())))
        driver.write("hello", to: "/a")
        driver.finish("/a")
        let output = driver.takeOutput()
        #expect(output.hasSuffix("Connection: close\r\n\r\nhello"))
        #expect(!output.contains("chunked"))
        #expect(driver.isDone)
    }

    @Test func aStreamIsNotAskedForMoreThanThereIsRoomFor() {
        var limits = Limits()
        limits.bufferedOutputBytes = 1000
        let driver = MachineDriver(limits)
        driver.receive(get("/a"))
        driver.answer("/a", Response(.ok, body: .stream(EmptyStream())))
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
    func whatTheClientHasIsNotSentAgain(_ condition: String, isUnchanged: Bool) {
        for body in [Response.Body.bytes(Array("body".utf8)), .stream(EmptyStream())] {
            let driver = MachineDriver()
            driver.receive(get("/a", "If-None-Match: \(condition)"))
            driver.answer("/a", Response(.ok, contentType: "text/plain", entityTag: EntityTag(42), body: body))
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

    @Test func aFieldWithAControlCharacterIsNotSent() {
        let driver = MachineDriver()
        driver.receive(get("/a"))
        var response = Response(.noContent)
        response.fields = [("X-Bad", "a\r\nSet-Cookie: b"), ("X-Good", "a b")]
        driver.answer("/a", response)
        #expect(driver.takeOutput() == "HTTP/1.1 204 No Content\r\nDate: now\r\nX-Good: a b\r\nX-Request-Id: id\r\n\r\n")
    }

    // MARK: Random bytes

    @Test(arguments: 0..<6 as Range<UInt64>)
    func noBytesStopTheProcess(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let example = get("/now") + post("/now", body: "abc")
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
                if Bool.random(using: &random) { driver.answer(["/late", "/stream"].randomElement(using: &random) ?? "") }
            }
            driver.endInput()
            driver.answer("/stream")
            driver.answer("/late")
            if driver.owesNothing { #expect(driver.isDone) }
        }
    }
}

private final class EmptyStream: ResponseStream {
    func produce(_ writer: StreamWriter) {
        writer.finish()
    }
}
