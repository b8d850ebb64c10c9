import Foundation
import Testing

@testable import HoldfastClient

@Suite struct PollingTests {
    private static let ada = HoldfastUser(id: "ada", attributes: ["country": "de"])

    @Test func `A failed poll is retried each minute five times, and then when the interval is over`() async throws {
        // 10:00 fails, 10:01 to 10:05 fail, the next poll is at 10:10.
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(500) })
        #expect(
            try await test.client.initialize(user: Self.ada) == .nothing(.unavailable(status: 500, retryAfter: nil)))
        for attempt in 1...5 {
            await test.clock.untilSleeping(for: .seconds(60))
            test.clock.advance(by: .seconds(60))
            await test.server.untilCalled("/v1/evaluations", count: 1 + attempt)
        }
        await test.clock.untilSleeping(for: .seconds(300))
        test.clock.advance(by: .seconds(300))
        await test.server.untilCalled("/v1/evaluations", count: 7)
        // 10:10 fails, 10:11 succeeds, the next poll is at 10:21.
        await test.clock.untilSleeping(for: .seconds(60))
        test.server.respond { call throws(HoldfastError) in Client.usual(call) }
        test.clock.advance(by: .seconds(60))
        await test.clock.untilSleeping(for: .seconds(600))
        #expect(test.client.isEnabled(flagKey: "checkout"))
        #expect(test.server.calls("/v1/evaluations").count == 8)
    }

    @Test func `The background has an interval of its own, and an overdue poll is made up for in the foreground`()
        async throws
    {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        await test.clock.untilSleeping(for: .seconds(600))
        test.client.enterBackground()
        await test.clock.untilSleeping(for: .seconds(3_600))
        test.clock.advance(by: .seconds(1_000))
        #expect(test.server.calls("/v1/evaluations").count == 1)
        test.client.enterForeground()
        await test.server.untilCalled("/v1/evaluations", count: 2)
        await test.clock.untilSleeping(for: .seconds(600))
    }

    @Test(.timeLimit(.minutes(5)), arguments: [-86_400, 86_400])
    func `Polling goes on when the clock is set`(seconds: Int) async throws {
        let test = try Client()
        try await test.client.initialize(user: Self.ada)
        for poll in 2...4 {
            await test.clock.untilSleeping(for: .seconds(600))
            test.clock.set(by: .seconds(seconds))
            test.clock.advance(by: .seconds(600))
            await test.server.untilCalled("/v1/evaluations", count: poll)
        }
        test.client.destroy()
    }

    @Test(.timeLimit(.minutes(5)))
    func `A failed poll is repeated after a minute in the background and foreground, too`()
        async throws
    {
        let test = try Client(server: StubServer { _ throws(HoldfastError) in .status(500) })
        try await test.client.initialize(user: Self.ada)
        await test.clock.untilSleeping(for: .seconds(60))
        test.client.enterBackground()
        test.clock.advance(by: .seconds(60))
        await test.server.untilCalled("/v1/evaluations", count: 2)
        await test.clock.untilSleeping(for: .seconds(60))
        test.client.enterForeground()
        test.clock.advance(by: .seconds(60))
        await test.server.untilCalled("/v1/evaluations", count: 3)
    }
}
