import Foundation
import Synchronization
import Testing

@testable import HoldfastClient

/// The notifications of a system, and its background tasks.
@Suite(.timeLimit(.minutes(2))) struct LifecycleTests {
    private let center = NotificationCenter()
    private let lifecycle = Lifecycle(
        background: Notification.Name("background"), foreground: Notification.Name("foreground"),
        end: Notification.Name("end"))

    /// A system that remembers what an app asks it for.
    private final class Scheduler: BackgroundScheduler {
        private struct State {
            var launch: (@Sendable (any LaunchedTask) -> Void)?
            var requests: [Date] = []
        }

        private let state = Mutex(State())
        let accepts: Bool

        init(accepts: Bool = true) {
            self.accepts = accepts
        }

        var requests: [Date] { state.withLock { $0.requests } }

        func register(_ identifier: String, _ launch: @escaping @Sendable (any LaunchedTask) -> Void) -> Bool {
            if accepts { state.withLock { $0.launch = launch } }
            return accepts
        }

        func submit(_ identifier: String, noSoonerThan date: Date) {
            state.withLock { $0.requests.append(date) }
        }

        /// Launches the task and returns its success.
        func launch(_ task: LaunchedStub = LaunchedStub()) async -> Bool? {
            state.withLock { $0.launch }?(task)
            for await success in task.completions { return success }
            return nil
        }
    }

    private final class LaunchedStub: LaunchedTask {
        let completions: AsyncStream<Bool>
        private let continuation: AsyncStream<Bool>.Continuation
        private let whenExpired: @Sendable (@escaping @Sendable () -> Void) -> Void

        /// - Parameter whenExpired: gets the function to call when the time is over.
        init(whenExpired: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void = { _ in }) {
            self.whenExpired = whenExpired
            (completions, continuation) = AsyncStream.makeStream()
        }

        func onExpiration(_ expire: @escaping @Sendable () -> Void) { whenExpired(expire) }

        func complete(success: Bool) { continuation.yield(success) }
    }

    @Test func `A client follows the system: it sends events in the background, and polls in the foreground`()
        async throws
    {
        let test = try Client()
        test.client.follow(lifecycle, of: center)
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        test.client.track(goalID: "purchase")
        await test.clock.untilSleeping(for: .seconds(600))
        center.post(name: lifecycle.background, object: nil)
        await test.clock.untilSleeping(for: .seconds(3_600))
        await test.server.untilCalled("/v1/events")
        test.clock.advance(by: .seconds(1_000))
        center.post(name: lifecycle.foreground, object: nil)
        await test.server.untilCalled("/v1/evaluations", count: 2)
        test.client.destroy()
    }

    @Test func `An app that was launched in the background is there until the system says otherwise`() async throws {
        let test = try Client { $0.listensToChanges = true }
        test.client.follow(lifecycle, of: center, isInBackground: true)
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        await test.clock.untilSleeping(for: .seconds(3_600))
        #expect(test.server.calls("/v1/changes").isEmpty)
        center.post(name: lifecycle.foreground, object: nil)
        await test.clock.untilSleeping(for: .seconds(600))
        await test.server.untilCalled("/v1/changes")
        test.client.destroy()
    }

    @Test func `Caches and counts are written when the app ends`() async throws {
        let test = try Client { $0.reportsEvaluationCounts = true }
        test.client.follow(lifecycle, of: center)
        try AttributeService(client: test.client).update(attributes: ["age": 40], userID: "ada")
        _ = test.client.boolVariation(flagKey: "checkout", defaultValue: false)
        center.post(name: try #require(lifecycle.end), object: nil)
        #expect(FileManager.default.fileExists(atPath: test.directory.path("attributes.cache")))
        #expect(test.client.core.waiting(.evaluationCounts).count == 1)
        test.client.destroy()
    }

    @Test func `A client that is released follows no longer`() throws {
        weak var released: HoldfastClient?
        do {
            let test = try Client()
            test.client.follow(lifecycle, of: center)
            released = test.client
        }
        #expect(released == nil)
        center.post(name: lifecycle.background, object: nil)
    }

    @Test func `Each background task asks for the next one, and refreshes the client`() async throws {
        let test = try Client()
        try await test.client.initialize(user: HoldfastUser(id: "ada"))
        let scheduler = Scheduler()
        let refresh = BackgroundRefresh("refresh", scheduler: scheduler) { [client = test.client] in client }
        #expect(refresh.register())
        refresh.follow(lifecycle.background, of: center)
        #expect(scheduler.requests.isEmpty)
        center.post(name: lifecycle.background, object: nil)
        let next = test.clock.now.addingTimeInterval(3_600)
        #expect(scheduler.requests == [next])
        test.client.track(goalID: "purchase")
        #expect(await scheduler.launch() == true)
        #expect(scheduler.requests == [next, next])
        #expect(test.client.waitingEvents == 0 && test.server.calls("/v1/evaluations").count == 2)
        test.server.respond { _ throws(HoldfastError) in throw .unreachable("it is down") }
        #expect(await scheduler.launch() == false)
        test.client.destroy()
    }

    @Test func `A background task whose time is over ends at once`() async throws {
        let gate = Gate()
        let test = try Client(
            server: StubServer { call throws(HoldfastError) in
                await gate.passed()
                return Client.usual(call)
            })
        try test.client.start(user: HoldfastUser(id: "ada"))
        let scheduler = Scheduler()
        let refresh = BackgroundRefresh("refresh", scheduler: scheduler) { [client = test.client] in client }
        #expect(refresh.register())
        #expect(await scheduler.launch(LaunchedStub { expire in expire() }) == false)
        gate.open()
        test.client.destroy()
    }

    @Test func `Without a client a task fails, and an app that may have none is told`() async {
        let scheduler = Scheduler()
        let refresh = BackgroundRefresh("refresh", scheduler: scheduler) { nil }
        #expect(refresh.register())
        refresh.follow(lifecycle.background, of: center)
        center.post(name: lifecycle.background, object: nil)
        #expect(await scheduler.launch() == false)
        #expect(scheduler.requests.isEmpty)
        #expect(!BackgroundRefresh("refresh", scheduler: Scheduler(accepts: false)) { nil }.register())
    }
}
