import Foundation
import Synchronization
import Testing

@testable import HoldfastClient

/// Split tests with a scripted server.
@Suite(.timeLimit(.minutes(2))) struct SplitTestServiceTests {
    private let storage = InMemorySplitTestStorage()
    private let analytics = RecordingAnalytics()
    private let server: AssigningServer
    private let test: Client

    init() throws {
        server = AssigningServer(.group("control"))
        test = try Client(server: server.stub)
    }

    /// A service as of another run of the app.
    private func service(
        userID: String? = "ann", storage: (any SplitTestStorage)? = nil,
        draw: @escaping @Sendable (Int) -> Int = { _ in 0 }
    ) -> SplitTestService {
        SplitTestService(
            client: test.client, userID: userID, storage: storage ?? self.storage, analytics: analytics, draw: draw)
    }

    private var exposures: [String?] {
        get {
            test.client.core.waiting(.exposure).map { event in
                guard case .exposure(let exposure) = event else { return nil }
                return "\(exposure.userID) \(exposure.experiment) \(exposure.variationKey ?? "-")"
            }
        }
    }

    @Test(arguments: PaywallTest.Group.allCases)
    func `The group is the one that the server assigns`(group: PaywallTest.Group) async {
        server.assign(.group(group.rawValue))
        let handle = await service().fetchSplitTest(PaywallTest.self)
        #expect(handle.group == group && handle.source == .server && handle.isParticipating)
        #expect(analytics.calls == [])
        #expect(test.client.waitingEvents == 0)
    }

    @Test func `The server is asked once in a run, and its change is seen by the next run`() async {
        let first = service()
        #expect(await first.fetchSplitTest(PaywallTest.self).group == .control)
        server.assign(.group("annual_first"))
        #expect(await first.fetchSplitTest(PaywallTest.self).group == .control)
        #expect(server.count == 1)
        let next = service()
        #expect(next.keptSplitTest(PaywallTest.self)?.group == .control)
        #expect(next.keptSplitTest(PaywallTest.self)?.source == .kept)
        #expect(await next.fetchSplitTest(PaywallTest.self).group == .annualFirst)
    }

    @Test(arguments: [AssigningServer.Response.error(.unreachable("no network")), .problem(404), .problem(500)])
    func `A kept group is used when the server gives none`(response: AssigningServer.Response) async {
        _ = await service().fetchSplitTest(PaywallTest.self)
        server.assign(response)
        let handle = await service().fetchSplitTest(PaywallTest.self)
        #expect(handle.group == .control && handle.source == .kept && handle.error != nil)
    }

    @Test func `Without a kept group one is drawn, within the time limit, and lasts`() async throws {
        server.assign(.silence)
        let service = service { _ in 2 }
        async let fetched = service.fetchSplitTest(PaywallTest.self)
        await test.clock.untilSleeping(for: .seconds(2))
        test.clock.advance(by: .seconds(2))
        let handle = await fetched
        #expect(handle.group == .annualFirst && handle.source == .local && handle.error == .unavailable(.timedOut))
        handle.hit()
        #expect(exposures == ["ann paywall annual_first"])

        // The server may only say whether the test runs.
        server.assign(.group("control"))
        #expect(await self.service().fetchSplitTest(PaywallTest.self).group == .annualFirst)
        #expect(server.stub.calls("/v1/assign").last?.query?.contains("experiment=paywall") == true)
        server.assign(.group(nil))
        #expect(await !self.service().fetchSplitTest(PaywallTest.self).isParticipating)
        server.assign(.group("control"))
        #expect(await self.service().fetchSplitTest(PaywallTest.self).group == .annualFirst)
    }

    @Test(arguments: [
        // Nobody has seen the drawn group: it yields to the one that the user has, not to one that nobody has yet.
        (false, AssigningServer.Response.held("control_check", source: "stored"), PaywallTest.Group.controlCheck),
        (false, .group("control"), .annualFirst),
        // The user is measured in the drawn group.
        (true, .held("control_check", source: "stored"), .annualFirst),
        (true, .held("control_check", source: "override"), .controlCheck),
    ])
    func `A drawn group that was seen stays, unless an admin sets another`(
        wasSeen: Bool, response: AssigningServer.Response, group: PaywallTest.Group
    ) async {
        server.assign(.error(.unreachable("no network")))
        let drawn = await service { _ in 2 }.fetchSplitTest(PaywallTest.self)
        #expect(drawn.group == .annualFirst && drawn.source == .local)
        if wasSeen { drawn.hit() }
        server.assign(response)
        let handle = await service().fetchSplitTest(PaywallTest.self)
        #expect(handle.group == group && handle.source == (group == .annualFirst ? .local : .server))
    }

    @Test func `A drawn group becomes the server's, which has learned it from the exposure`() async {
        server.assign(.error(.unreachable("no network")))
        await service { _ in 2 }.fetchSplitTest(PaywallTest.self).hit()
        server.assign(.held("annual_first", source: "stored"))
        #expect(await service().fetchSplitTest(PaywallTest.self).source == .server)
        // From now on the server decides.
        server.assign(.held("control", source: "stored"))
        #expect(await service().fetchSplitTest(PaywallTest.self).group == .control)
        #expect(exposures == ["ann paywall annual_first"])
    }

    @Test func `What was drawn offline reaches the server before it first evaluates the user`() async throws {
        server.assign(.error(.unreachable("no network")))
        await service { _ in 2 }.fetchSplitTest(PaywallTest.self).hit()
        test.client.destroy()
        let later = try Client(directory: test.directory, server: server.stub)
        try await later.client.initialize(user: HoldfastUser(id: "ann"))
        let paths = server.stub.paths.filter { $0 != "/v1/assign" }
        #expect(paths == ["/v1/exposures", "/v1/evaluations"])
        #expect(later.client.waitingEvents == 0)
        // Other exposures wait for their batch.
        later.client.reportExposure(experiment: "70", variationID: "id", userID: "ann")
        try await later.client.fetchEvaluations()
        #expect(later.client.waitingEvents == 1)
        later.client.destroy()
    }

    @Test func `Flags do not depend on exposures that cannot be sent`() async throws {
        test.client.reportExposure(experiment: "paywall", variationKey: "annual_first", userID: "ann")
        server.stub.respond { call throws(HoldfastError) in
            call.path == "/v1/exposures" ? .status(503) : Client.usual(call)
        }
        #expect(try await test.client.initialize(user: HoldfastUser(id: "ada")) == .server)
        #expect(test.client.waitingEvents == 1)
    }

    @Test func `A test that the server does not know is not drawn`() async {
        server.assign(.problem(404))
        let handle = await service().fetchSplitTest(PaywallTest.self)
        #expect(handle.group == .control && !handle.isParticipating)
        guard case .refused = handle.error else {
            Issue.record("\(String(describing: handle.error))")
            return
        }
        handle.hit()
        #expect(analytics.calls == [] && test.client.waitingEvents == 0)
    }

    @Test func `Many fetches and hits at once are one assignment and one exposure`() async throws {
        server.assign(.group("control_check"))
        let service = service()
        let groups = await withTaskGroup(of: PaywallTest.Group.self) { tasks in
            for _ in 0..<100 {
                tasks.addTask {
                    let handle = await service.fetchSplitTest(PaywallTest.self)
                    handle.hit()
                    return handle.group
                }
            }
            return await tasks.reduce(into: Set()) { $0.insert($1) }
        }
        #expect(groups == [.controlCheck])
        #expect(server.count == 1)
        #expect(analytics.calls == ["split_test-paywall=control_check"])
        #expect(exposures == ["ann paywall control_check"])
    }

    @Test func `The exposure is reported once over all runs`() async throws {
        for _ in 0..<3 { await service().fetchSplitTest(PaywallTest.self).hit() }
        #expect(analytics.calls == ["split_test-paywall=control"])
        #expect(exposures.count == 1)
    }

    @Test func `Each user has an exposure of their own`() async throws {
        for user in ["caf\u{E9}", "bob", nil] { await service(userID: user).fetchSplitTest(PaywallTest.self).hit() }
        #expect(analytics.calls.count == 3)
        #expect(exposures.count == 3)
    }

    @Test func `An exposure that the queue does not take is reported by the next hit`() async throws {
        let small = try Client(server: server.stub) { $0.queueSize = 1 }
        small.client.track(goalID: "fills the queue", userID: "ann")
        let service = SplitTestService(client: small.client, userID: "ann", storage: storage, analytics: analytics)
        let handle = await service.fetchSplitTest(PaywallTest.self)
        handle.hit()
        #expect(analytics.calls == [])
        try await small.client.flush()
        handle.hit()
        #expect(analytics.calls == ["split_test-paywall=control"])
        #expect(small.client.waitingEvents == 1)
    }

    @Test func `A user outside the test sees the fallback and is not exposed`() async {
        server.assign(.group(nil))
        let service = service()
        let handle = await service.fetchSplitTest(PaywallTest.self)
        #expect(handle.group == .control && !handle.isParticipating && handle.error == nil)
        handle.hit()
        #expect(await !service.fetchSplitTest(PaywallTest.self).isParticipating)
        #expect(server.count == 1)
        #expect(analytics.calls == [] && test.client.waitingEvents == 0)
    }

    @Test func `An unknown variation is no group`() async {
        server.assign(.group("weekly"))
        let handle = await service().fetchSplitTest(PaywallTest.self)
        #expect(!handle.isParticipating && handle.error == .unknownGroup("weekly"))
    }

    @Test(arguments: [
        (
            AssigningServer.Response.group("weekly"), SplitTestError.unknownGroup("weekly"),
            "the test does not declare the group 'weekly'"
        ),
        (
            .error(.unreachable("no network")), .unavailable(.unreachable("no network")),
            "the server cannot be reached: no network"
        ),
    ])
    func `Why there is no group from the server is logged`(
        response: AssigningServer.Response, error: SplitTestError, sentence: String
    ) async throws {
        let log = Log<String>()
        server.assign(response)
        let test = try Client(server: server.stub) {
            $0.logger = { level, message, metadata in
                log.add("\(level) \(message): \(metadata["test"] ?? ""), \(metadata["error"] ?? "")")
            }
        }
        let service = SplitTestService(client: test.client, userID: "ann", storage: storage)
        #expect(await service.fetchSplitTest(PaywallTest.self).error == error)
        #expect(log.all == ["warning a split test has no group from the server: paywall, \(sentence)"])
        test.client.destroy()
    }

    @Test func `A group that cannot be kept is not shown`() async {
        let failing = FailingStorage()
        let service = service(storage: failing)
        failing.fail(reads: true)
        #expect(await service.fetchSplitTest(PaywallTest.self).error == .storage(reason: "Failure()"))
        #expect(service.keptSplitTest(PaywallTest.self) == nil)
        failing.fail(writes: true)
        let handle = await service.fetchSplitTest(PaywallTest.self)
        #expect(!handle.isParticipating && handle.error == .storage(reason: "Failure()"))
        failing.fail()
        await service.fetchSplitTest(PaywallTest.self).hit()
        #expect(analytics.calls.count == 1)
    }

    @Test func `Refresh follows an override, exposes again and tells listeners`() async throws {
        let service = service()
        let changes = Mutex<[Set<String>]>([])
        service.addUpdateListener { tests in changes.withLock { $0.append(tests) } }
        await service.fetchSplitTest(PaywallTest.self).hit()
        await service.refresh(PaywallTest.self).hit()
        #expect(analytics.calls.count == 1)
        #expect(changes.withLock { $0 }.isEmpty)

        server.assign(.group("annual_first"))
        await service.refreshAll()
        #expect(service.keptSplitTest(PaywallTest.self)?.group == .annualFirst)
        #expect(changes.withLock { $0 } == [["paywall"]])
        await service.fetchSplitTest(PaywallTest.self).hit()
        #expect(analytics.calls.last == "split_test-paywall=annual_first")

        server.assign(.group(nil))
        #expect(await !service.refresh(PaywallTest.self).isParticipating)
        #expect(self.service().keptSplitTest(PaywallTest.self) == nil)
    }

    @Test func `A refresh that fails leaves the group`() async {
        let service = service()
        _ = await service.fetchSplitTest(PaywallTest.self)
        server.assign(.error(.unreachable("no network")))
        let handle = await service.refresh(PaywallTest.self)
        #expect(handle.group == .control && handle.source == .kept)
    }

    @Test func `A retired group is recognized`() async {
        server.assign(.group("annual_first"))
        #expect(await service().fetchSplitTest(LaterPaywallTest.self).group == .annualFirst)
    }

    @Test func `A changed datafile refreshes the tests`() async throws {
        @Sendable func evaluations(_ revision: String, _ variation: String?) -> StubServer.Response {
            .json(
                #"{"user_id":"ann","revision":"\#(revision)","evaluations":[{"flag_key":"paywall","variation_key":\#(variation.map { "\"\($0)\"" } ?? "null"),"variation_id":null,"experiment_id":null,"enabled":true,"variables":{},"rule_key":null,"source":"none"}]}"#
            )
        }
        let paused = Mutex(false)
        test.server.respond { call throws(HoldfastError) in
            let isPaused = paused.withLock { $0 }
            switch call.path {
            case "/v1/evaluations": return evaluations(isPaused ? "2" : "1", isPaused ? nil : "control")
            case "/v1/assign":
                return .json(
                    #"{"experiment_id":"70","experiment_key":"paywall","variation_id":null,"variation_key":\#(isPaused ? "null" : "\"control\""),"source":"bucketed"}"#
                )
            default: return Client.usual(call)
            }
        }
        try await test.client.initialize(user: HoldfastUser(id: "ann"))
        let service = service()
        let (changes, continuation) = AsyncStream.makeStream(of: Set<String>.self)
        service.addUpdateListener { continuation.yield($0) }
        #expect(await service.fetchSplitTest(PaywallTest.self).isParticipating)
        paused.withLock { $0 = true }
        try await test.client.fetchEvaluations()
        for await tests in changes {
            #expect(tests == ["paywall"])
            break
        }
        #expect(await !service.fetchSplitTest(PaywallTest.self).isParticipating)
    }

    @Test func `A group of the server is asked for when it can be reached again`() async throws {
        server.assign(.error(.unreachable("no network")))
        let service = service { _ in 2 }
        try await test.client.initialize(user: HoldfastUser(id: "ann"))
        let (changes, continuation) = AsyncStream.makeStream(of: Set<String>.self)
        service.addUpdateListener { continuation.yield($0) }
        let drawn = await service.fetchSplitTest(PaywallTest.self)
        #expect(drawn.group == .annualFirst && drawn.error != nil)
        // The server has paused the test.
        server.assign(.group(nil))
        try await test.client.fetchEvaluations()
        for await tests in changes {
            #expect(tests == ["paywall"])
            break
        }
        #expect(await !service.fetchSplitTest(PaywallTest.self).isParticipating)
        let asked = server.count
        try await test.client.fetchEvaluations()
        #expect(server.count == asked)
    }

    @Test func `A view can be given another service`() async {
        struct Preview: SplitTestServiceProtocol {
            func fetchSplitTest<Test: SplitTest>(_ test: Test.Type) async -> SplitTestHandle<Test> {
                SplitTestHandle(group: test.fallbackGroup, source: .local)
            }
            func keptSplitTest<Test: SplitTest>(_ test: Test.Type) -> SplitTestHandle<Test>? { nil }
        }
        let service: any SplitTestServiceProtocol = Preview()
        #expect(await service.fetchSplitTest(PaywallTest.self).group == .control)
        #expect(service.keptSplitTest(PaywallTest.self) == nil)
    }
}
