import Dispatch
import Glibc
import Synchronization
import Testing

@testable import HTTPServer

/// The whole server over real sockets. One after the other, because one takes most of the descriptors that are usual.
@Suite(.serialized) struct HTTPServerTests {
    private let observations = Observations()

    private func withServer(
        eventLoops: Int = 2, _ limits: Limits = Limits(), _ body: (HTTPServer, UInt16) throws -> Void
    ) throws {
        var configuration = HTTPServer.Configuration()
        configuration.address = "127.0.0.1:0"
        configuration.eventLoops = eventLoops
        configuration.limits = limits
        let observations = observations
        let server = try HTTPServer(configuration) { _ in TestApplication(observations) }
        defer {
            server.stop(within: 0)
            server.wait()
        }
        try body(server, server.address.port)
    }

    // MARK: Serving

    @Test func aThousandPipelinedRequestsAreAnsweredInOrder() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send((0..<1000).map { request("GET", "/number/\($0)") }.joined())
            for number in 0..<1000 {
                let body = try client.answer().body
                #expect(body == "\(number)")
            }
        }
    }

    @Test func aRefusalIsTheAnswerToTheRequestThatWasRead() throws {
        var limits = Limits()
        limits.bodyBytes = 10
        try withServer(limits) { _, port in
            let post = try TestClient(port: port)
            try post.send(request("POST", "/echo", "Content-Length: 11", "X-Request-Id: mine"))
            let refusal = try post.answer()
            #expect(refusal.status == 413)
            #expect(TestClient.field("X-Request-Id", of: refusal.head) == "mine")
            let head = try TestClient(port: port)
            try head.send(request("HEAD", "/now", "Content-Length: 11"))
            let text = try head.rest()
            #expect(text.hasPrefix("HTTP/1.1 413 "))
            #expect(text.hasSuffix("\r\n\r\n"))
        }
    }

    @Test func figuresAreCollectedOfLoopsThatHaveNotEnded() throws {
        try withServer { server, _ in
            let collected = DispatchSemaphore(value: 0)
            server.stop(within: 0)
            server.wait()
            server.collect { _, statistics in statistics.accepted } completion: { #expect($0.isEmpty); collected.signal() }
            #expect(collected.comes())
        }
    }

    @Test func aRequestMayComeByteByByte() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            for byte in request("POST", "/echo", "Transfer-Encoding: chunked", body: "3\r\nabc\r\n0\r\n\r\n").utf8 {
                try client.send([byte])
            }
            #expect(try client.answer().body == "abc")
        }
    }

    @Test func answersGivenAtTheEndOfABatchDoNotHoldUpWhatFollows() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            let batched = request("POST", "/batched", "Content-Length: 1", body: "x")
            try client.send(batched + request("GET", "/now") + batched + batched + request("GET", "/now"))
            let bodies = try (0..<5).map { _ in try client.answer().body }
            #expect(bodies == ["batched", "now", "batched", "batched", "now"])
        }
    }

    @Test func idleConnectionsAreNoHindrance() throws {
        try raiseDescriptorLimit(to: 6000)
        try withServer { _, port in
            let idle = try (0..<2000).map { _ in try TestClient(port: port) }
            let client = try TestClient(port: port)
            for _ in 0..<100 {
                try client.send(request("GET", "/now"))
                #expect(try client.answer().status == 200)
            }
            for client in [idle.first, idle.last] {
                try client?.send(request("GET", "/now"))
                #expect(try client?.answer().status == 200)
            }
        }
    }

    @Test func aLargeBodyIsStreamedWithPauses() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            let length = 3_000_000
            try client.send(request("POST", "/upload", "Content-Length: \(length)"))
            try client.send(Array(repeating: 65, count: length))
            #expect(try client.answer().body == "\(length)")
            try client.send(request("GET", "/now"))
            #expect(try client.answer().body == "now")
        }
    }

    @Test func manySmallChunksAreJoinedInLinearTime() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            let count = 200_000
            let chunks = String(repeating: "1\r\na\r\n", count: count) + "0\r\n\r\n"
            let start = ContinuousClock.now
            try client.send(request("POST", "/echo", "Transfer-Encoding: chunked", body: chunks))
            #expect(try client.answer().body.utf8.count == count)
            #expect(ContinuousClock.now - start < .seconds(5))
        }
    }

    // MARK: Fields

    @Test func aStreamThatHasNothingYetIsAskedAgain() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            // Until the connection ends, as HTTP/1.0 has no chunks.
            try client.send("GET /hesitant HTTP/1.0\r\n\r\n")
            let text = try client.rest()
            #expect(text.hasSuffix("\r\n\r\nAAAAAAAAAA"))
        }
    }

    @Test func aRequestIDIsEchoedOrMade() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/now", "X-Request-Id: mine-1"))
            #expect(TestClient.field("X-Request-Id", of: try client.answer().head) == "mine-1")
            var ids: Set<String> = []
            for unusable in ["", "two words", String(repeating: "x", count: 129)] {
                try client.send(request("GET", "/now", "X-Request-Id: \(unusable)"))
                ids.insert(try #require(TestClient.field("X-Request-Id", of: try client.answer().head)))
            }
            #expect(ids.count == 3)
            #expect(ids.allSatisfy { $0.utf8.count >= 10 && !$0.hasPrefix("xx") })
        }
    }

    @Test func whatTheClientHasIsNotSentAgain() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/tagged"))
            let tag = try #require(TestClient.field("ETag", of: try client.answer().head))
            try client.send(request("GET", "/tagged", "If-None-Match: \(tag)") + request("GET", "/now"))
            #expect(try client.answer().status == 304)
            #expect(try client.answer().body == "now")
        }
    }

    @Test(arguments: [
        ("OPTIONS", "*", 204, nil), ("OPTIONS", "/now", 204, "GET, HEAD, OPTIONS"), ("PUT", "/now", 405, "GET, HEAD, OPTIONS"),
        ("GET", "/nowhere", 404, nil), ("HEAD", "/nowhere", 404, nil),
    ] as [(String, String, Int, String?)])
    func whatNoRouteServesIsAnswered(_ method: String, path: String, status: Int, allow: String?) throws {
        try withServer(eventLoops: 1) { _, port in
            let client = try TestClient(port: port)
            try client.send(request(method, path, "Connection: close"))
            client.finishSending()
            let answer = try client.rest()
            #expect(answer.hasPrefix("HTTP/1.1 \(status) "))
            #expect(TestClient.field("Allow", of: answer) == allow)
        }
    }

    // MARK: Peers that misbehave

    @Test(arguments: [
        ([0x16, 0x03, 0x01, 0x02, 0x00, 0x01], 400),
        (Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8), 505),
        (Array("GET / HTTP/1.1\r\n\r\n".utf8), 400),
        (Array("SSH-2.0-OpenSSH_9.2\r\n".utf8), 400),
    ] as [([UInt8], Int)])
    func whatIsNoRequestIsRefusedAndTheConnectionClosed(_ bytes: [UInt8], status: Int) throws {
        try withServer(eventLoops: 1) { _, port in
            let client = try TestClient(port: port)
            try client.send(bytes)
            let answer = try client.rest()
            #expect(answer.hasPrefix("HTTP/1.1 \(status) "))
            #expect(answer.contains("Connection: close\r\n"))
        }
    }

    @Test(arguments: [
        "GET / HTTP/1.1\r\nHo", request("POST", "/echo", "Content-Length: 5", body: "ab"),
        request("POST", "/upload", "Content-Length: 5", body: "ab"),
    ])
    func aSlowSenderIsCutOff(_ start: String) throws {
        var limits = Limits()
        limits.headerSeconds = 0.2
        limits.bodySeconds = 0.2
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port)
            let begin = ContinuousClock.now
            try client.send(start)
            let answer = try client.rest()
            let elapsed = ContinuousClock.now - begin
            #expect(answer.components(separatedBy: "HTTP/1.1 ").count == 2)
            #expect(answer.hasPrefix("HTTP/1.1 408 "))
            #expect(elapsed > .seconds(0.19) && elapsed < .seconds(2))
        }
    }

    @Test(arguments: ["", "\r\n"]) func anIdleConnectionIsClosed(lineBehind: String) throws {
        var limits = Limits()
        limits.idleSeconds = 0.1
        limits.headerSeconds = 0.1
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/now") + lineBehind)
            #expect(try client.answer().status == 200)
            #expect(try client.rest().isEmpty)
        }
    }

    @Test func aHandlerThatDoesNotAnswerIsNotWaitedForForever() throws {
        var limits = Limits()
        limits.responseSeconds = 0.1
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/held"))
            #expect(try client.rest().isEmpty)
            observations.answerHeld()
        }
    }

    @Test(arguments: [false, true])
    func aClientThatDisappearsInABodyIsNoticed(_ isReset: Bool) throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send(request("POST", "/upload", "Content-Length: 100", body: "ab"))
            isReset ? client.reset() : client.close()
            #expect(observations.bodyWasAborted.comes())
            let other = try TestClient(port: port)
            try other.send(request("GET", "/now"))
            #expect(try other.answer().status == 200)
        }
    }

    @Test func aSlowReaderIsGivenNoMoreThanItTakes() throws {
        var limits = Limits()
        limits.writeSeconds = 0.2
        try withServer(eventLoops: 1, limits) { _, port in
            let client = try TestClient(port: port, receiveBuffer: 4096)
            try client.send(request("GET", "/endless"))
            #expect(observations.streamWasLetGo.comes())
            #expect(observations.streamedBytes.load(ordering: .relaxed) < 8_000_000)
            client.close()
        }
    }

    @Test func aHalfClosedClientIsAnswered() throws {
        try withServer { _, port in
            let client = try TestClient(port: port)
            try client.send((0..<100).map { request("GET", "/number/\($0)") }.joined())
            client.finishSending()
            for number in 0..<100 {
                let body = try client.answer().body
                #expect(body == "\(number)")
            }
            #expect(try client.rest().isEmpty)
        }
    }

    // MARK: Limits of the server

    @Test func aConnectionBeyondTheLimitIsTurnedAway() throws {
        var limits = Limits()
        limits.connections = 2
        try withServer(limits) { _, port in
            let clients = try (0..<2).map { _ in try TestClient(port: port) }
            for client in clients {
                try client.send(request("GET", "/now"))
                #expect(try client.answer().status == 200)
            }
            let answer = try TestClient(port: port).rest()
            #expect(answer.hasPrefix("HTTP/1.1 503 "))
            #expect(answer.hasSuffix("the server has no free connection; try again later"))
            #expect(TestClient.field("Content-Length", of: answer) == "50")
            #expect(TestClient.field("X-Request-Id", of: answer) != nil && TestClient.field("Date", of: answer) != nil)
        }
    }

    @Test func connectionsAreSpreadOverTheEventLoops() throws {
        try withServer(eventLoops: 4) { server, port in
            let clients = try (0..<40).map { _ in
                let client = try TestClient(port: port)
                try client.send(request("GET", "/now"))
                #expect(try client.answer().status == 200)
                return client
            }
            let open = Mutex<[Int]>([])
            let isCollected = DispatchSemaphore(value: 0)
            server.collect({ _, statistics in statistics.open }) { counts in
                open.withLock { $0 = counts }
                isCollected.signal()
            }
            isCollected.wait()
            #expect(open.withLock { $0 } == [10, 10, 10, 10])
            for client in clients { client.close() }
        }
    }

    // MARK: Stopping

    @Test func stoppingAnswersWhatIsInFlight() throws {
        try withServer(eventLoops: 1) { server, port in
            let idle = try TestClient(port: port)
            try idle.send(request("GET", "/now"))
            #expect(try idle.answer().status == 200)
            let waiting = try TestClient(port: port)
            try waiting.send(request("GET", "/held"))
            #expect(observations.isHolding.comes())
            server.stop(within: 10)
            #expect(try idle.rest().isEmpty)
            #expect(throws: SystemError.self) { try TestClient(port: port) }
            observations.answerHeld()
            let answer = try waiting.rest()
            #expect(answer.hasSuffix("held"))
            #expect(answer.contains("Connection: close\r\n"))
            waiting.close()
            server.wait()
        }
    }

    @Test func stoppingDoesNotWaitLongerThanItIsTold() throws {
        try withServer(eventLoops: 1) { server, port in
            let client = try TestClient(port: port)
            try client.send(request("GET", "/held"))
            #expect(observations.isHolding.comes())
            server.stop(within: 0.1)
            server.wait()
            #expect(try client.rest().isEmpty)
            observations.answerHeld()
        }
    }

    @Test func anAddressInUseIsNotShared() throws {
        try withServer { server, _ in
            var configuration = HTTPServer.Configuration()
            configuration.address = server.address.description
            #expect(throws: SystemError.self) {
                _ = try HTTPServer(configuration) { _ in TestApplication(observations) }
            }
        }
    }

    // MARK: Descriptors

    /// For the rest of the process: lowering it again could take descriptors from tests beside.
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
