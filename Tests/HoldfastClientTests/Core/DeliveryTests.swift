import Foundation
import Synchronization
import Testing

@testable import HoldfastClient

@Suite struct DeliveryTests {
    private func outcomes(_ test: Client) -> AsyncStream<DeliveryNotice>.Iterator {
        test.client.deliveries().makeAsyncIterator()
    }

    private func track(_ test: Client, _ goals: some Sequence<Int>) {
        for number in goals { test.client.track(goalID: "goal\(number)", value: Double(number), userID: "ada") }
    }

    private func goals(_ call: StubServer.Call) throws -> [String] {
        try JSONDecoder().decode([HoldfastValue].self, from: Data(call.body.utf8)).compactMap {
            $0["goal"]?.stringValue
        }
    }

    @Test func `Events are sent in batches when the flush interval is over`() async throws {
        let test = try Client { $0.batchSize = 10 }
        track(test, 0..<5)
        await test.clock.untilSleeping(for: .seconds(30))
        #expect(test.server.calls("/v1/events").isEmpty)
        var notices = outcomes(test)
        test.clock.advance(by: .seconds(30))
        for _ in 0..<5 {
            guard case .delivered = await notices.next()?.outcome else {
                Issue.record("not delivered")
                return
            }
        }
        #expect(try test.server.calls("/v1/events").map(goals) == [(0..<5).map { "goal\($0)" }])
        #expect(test.client.waitingEvents == 0)
    }

    @Test func `Events of an earlier run are sent at the start, and new ones with the next batch`() async throws {
        let first = try Client()
        track(first, 0..<3)
        first.client.destroy()
        let second = try Client(directory: first.directory)
        await second.server.untilCalled("/v1/events")
        #expect(try goals(second.server.calls("/v1/events")[0]).count == 3)
        try await second.client.flush()
        track(second, 3..<4)
        await second.clock.untilSleeping(for: .seconds(30))
        #expect(second.server.calls("/v1/events").count == 1)
        second.client.destroy()
    }

    @Test func `A full group is sent at once`() async throws {
        let test = try Client { $0.batchSize = 3 }
        track(test, 0..<3)
        await test.server.untilCalled("/v1/events")
        #expect(try goals(test.server.calls("/v1/events")[0]).count == 3)
    }

    @Test func `Each goal event has an id of its own, its value and its time`() async throws {
        let test = try Client()
        test.client.track(goalID: "bought", value: 12.5, tags: ["currency": "EUR"], userID: "ada")
        test.client.track(goalID: "bought", userID: "ada")
        try await test.client.flush()
        let sent = try JSONDecoder().decode(
            [HoldfastValue].self, from: Data(test.server.calls("/v1/events")[0].body.utf8))
        #expect(Set(sent.map { $0["id"] }).count == 2)
        #expect(sent[0]["value"] == 12.5 && sent[1]["value"] == nil)
        #expect(sent[0]["tags"] == ["currency": "EUR"])
        #expect(sent[0]["timestamp"] == "2027-01-15T08:00:00.000Z")
    }

    @Test func `A delivery ends when the client is destroyed under it, and the event is sent by the next`() async throws
    {
        let destroyed = Mutex<HoldfastClient?>(nil)
        let server = StubServer { call throws(HoldfastError) in
            if call.path == "/v1/events" { destroyed.withLock { $0.take() }?.destroy() }
            return Client.usual(call)
        }
        let test = try Client(server: server)
        destroyed.withLock { $0 = test.client }
        test.client.track(goalID: "bought", userID: "ada")
        await #expect(throws: HoldfastError.destroyed) { try await test.client.flush() }
        #expect(server.calls("/v1/events").count == 1)
        let next = try Client(directory: test.directory)
        try await next.client.flush()
        #expect(next.server.calls("/v1/events").count == 1)
    }

    @Test func `After failures the back-off grows, and queued events are sent in the end`() async throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in throw .unreachable("it is down") })
        track(test, 0..<3)
        await test.clock.untilSleeping(for: .seconds(30))
        test.clock.advance(by: .seconds(30))
        for attempt in 1...4 {
            await test.server.untilCalled("/v1/events", count: attempt)
            let longest = Double(1 << (attempt - 1))
            await test.clock.untilSleeping(in: .seconds(longest / 2)...(.seconds(longest)))
            test.clock.advance(by: .seconds(longest))
        }
        await test.server.untilCalled("/v1/events", count: 5)
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        #expect(test.client.waitingEvents == 0)
    }

    @Test(.timeLimit(.minutes(5))) func `A flush that succeeds ends the back-off`() async throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in throw .unreachable("it is down") })
        track(test, 0..<1)
        await test.clock.untilSleeping(for: .seconds(30))
        test.clock.advance(by: .seconds(30))
        for attempt in 1...8 {
            await test.server.untilCalled("/v1/events", count: attempt)
            let longest = Double(1 << (attempt - 1))
            await test.clock.untilSleeping(in: .seconds(longest / 2)...(.seconds(longest)))
            if attempt < 8 { test.clock.advance(by: .seconds(longest)) }
        }
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        // More than a minute of the pause was left, and no time passes.
        while test.clock.sleeping.contains(where: { $0 > .seconds(60) }) { await Task.yield() }
        // The next failure begins with the shortest pause.
        test.server.respond { _ throws(HoldfastError) in throw .unreachable("it is down again") }
        track(test, 1..<2)
        // The event is sent at once if the schedule looks for more after the flush, else after the flush interval.
        while !test.clock.sleeping.contains(where: { $0 <= .seconds(1) }) {
            if test.clock.sleeping.contains(.seconds(30)) { test.clock.advance(by: .seconds(30)) }
            await Task.yield()
        }
        test.client.destroy()
    }

    @Test func `Events have the time of the server's clock, if the device's is wrong by more than a minute`()
        async throws
    {
        let date = Mutex("Fri, 15 Jan 2027 09:30:00 GMT")
        let server = StubServer { call throws(HoldfastError) in
            var response = Client.usual(call)
            response.fields["date"] = date.withLock { $0 }
            return response
        }
        // It is 08:00:00 here.
        let first = try Client(server: server)
        first.client.track(goalID: "early", userID: "ada")
        try await first.client.flush()
        first.client.destroy()
        // The next run knows it before its first request.
        let test = try Client(directory: first.directory, server: server)
        test.client.track(goalID: "later", userID: "ada")
        test.client.reportExposure(experiment: "7001", userID: "ada")
        for text in ["Fri, 15 Jan 2027 08:00:59 GMT", "no date"] {
            date.withLock { $0 = text }
            try await test.client.flush()
            test.client.track(goalID: "right", userID: "ada")
        }
        try await test.client.flush()
        let sent = (test.server.calls("/v1/events") + test.server.calls("/v1/exposures"))
            .flatMap { $0.json.arrayValue ?? [] }
            .map { "\($0["goal"]?.stringValue ?? "exposure") \($0["timestamp"]?.stringValue ?? "")" }
        #expect(
            sent == [
                "early 2027-01-15T08:00:00.000Z", "later 2027-01-15T09:30:00.000Z", "right 2027-01-15T08:00:00.000Z",
                "right 2027-01-15T08:00:00.000Z", "exposure 2027-01-15T09:30:00.000Z",
            ])
        test.client.destroy()
    }

    @Test func `Retry-After is respected, by flush too`() async throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(429, ["retry-after": "120"]) })
        track(test, 0..<1)
        await #expect(throws: HoldfastError.unavailable(status: 429, retryAfter: .seconds(120))) {
            try await test.client.flush()
        }
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        #expect(test.server.calls("/v1/events").count == 1)
        test.clock.advance(by: .seconds(121))
        try await test.client.flush()
        #expect(test.client.waitingEvents == 0)
    }

    @Test func `A refused event is dropped and reported, and does not delay others`() async throws {
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                call.body.contains("goal5") ? .problem(400, "no such goal", "") : Client.usual(call)
            })
        var notices = outcomes(test)
        track(test, 0..<10)
        try await test.client.flush()
        #expect(test.client.waitingEvents == 0)
        var refused: [String] = []
        for _ in 0..<10 {
            guard let notice = await notices.next(), case .goal(let goal) = notice.event else { continue }
            if case .refused(let reason) = notice.outcome { refused.append("\(goal.goalID): \(reason)") }
        }
        #expect(refused == ["goal5: no such goal"])
    }

    @Test func `Each event of a group has a result of its own`() async throws {
        let test = try Client(
            server: StubServer { _ throws(HoldfastError) in
                .json(
                    #"""
                    {"results":[{"index":0,"status":"stored"},{"index":1,"status":"refused","reason":"too old","retriable":false},
                     {"index":2,"status":"refused","reason":"busy","retriable":true},{"index":3,"status":"repeated"}]}
                    """#)
            })
        var notices = outcomes(test)
        track(test, 0..<4)
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        #expect(test.client.waitingEvents == 1)
        var told: [String] = []
        for _ in 0..<4 {
            switch await notices.next()?.outcome {
            case .delivered: told.append("delivered")
            case .refused(let reason): told.append(reason)
            case .postponed: told.append("postponed")
            default: told.append("?")
            }
        }
        #expect(told == ["delivered", "too old", "postponed", "delivered"])
    }

    @Test(arguments: [401, 403, 404, 500, 503]) func `Events outlive what is not their fault`(_ status: Int)
        async throws
    {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(status) })
        track(test, 0..<3)
        await #expect(throws: HoldfastError.self) { try await test.client.flush() }
        #expect(test.client.waitingEvents == 3)
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        try await test.client.flush()
        #expect(test.client.waitingEvents == 0)
    }

    @Test func `Events beyond the queue's limit are dropped and reported`() async throws {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(500) }) { $0.queueSize = 2 }
        var notices = outcomes(test)
        track(test, 0..<3)
        guard case .dropped = await notices.next()?.outcome else {
            Issue.record("not told")
            return
        }
        #expect(test.client.waitingEvents == 2)
    }

    @Test func `Queued events are sent by the next client, with the same ids`() async throws {
        let directory = try TemporaryDirectory()
        let first = try Client(directory: directory, server: StubServer { _ throws(HoldfastError) in .status(500) })
        track(first, 0..<5)
        try? await first.client.flush()
        first.client.destroy()
        let second = try Client(directory: directory)
        try await second.client.flush()
        #expect(second.server.calls("/v1/events").map(\.body) == first.server.calls("/v1/events").map(\.body))
    }

    @Test func `Texts that are none are dropped by themselves`() async throws {
        let test = try Client()
        var notices = outcomes(test)
        test.client.track(goalID: "g", value: .infinity, userID: "ada")
        guard case .dropped = await notices.next()?.outcome else {
            Issue.record("not told")
            return
        }
        #expect(test.client.waitingEvents == 0)
    }
}
