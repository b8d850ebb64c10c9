import Foundation
import Testing

@testable import HoldfastClient

/// Split tests of the client's user, who may log in and out.
@Suite(.timeLimit(.minutes(2))) struct SplitTestIdentityTests {
    private let storage = InMemorySplitTestStorage()
    private let analytics = RecordingAnalytics()
    private let server: AssigningServer
    private let test: Client

    init() throws {
        server = AssigningServer(.error(.unreachable("no network")))
        test = try Client(server: server.stub)
    }

    private func service(drawing index: Int = 0) -> SplitTestService {
        SplitTestService(client: test.client, storage: storage, analytics: analytics) { _ in index }
    }

    /// The users whose exposures were reported. A login sends what waits.
    private func exposedUsers() async throws -> [String] {
        try await test.client.flush()
        return test.server.calls("/v1/exposures").flatMap { $0.json.arrayValue ?? [] }
            .compactMap { $0["user_id"]?.stringValue }
    }

    @Test func `Without a user of its own the service has the client's`() async throws {
        let service = service()
        #expect(service.userID == test.client.anonymousUserID)
        try await test.client.initializeAnonymously()
        #expect(service.userID == test.client.anonymousUserID)
        try await test.client.initialize(user: HoldfastUser(id: "bob"))
        #expect(service.userID == "bob")
        server.assign(.group("control"))
        _ = await service.fetchSplitTest(PaywallTest.self)
        #expect(server.stub.calls("/v1/assign").last?.json["user_id"] == "bob")
    }

    @Test func `A login keeps the group, also after a restart, and is no second hit`() async throws {
        try await test.client.initializeAnonymously()
        let anonymousID = test.client.anonymousUserID
        let first = service(drawing: 2)
        let handle = await first.fetchSplitTest(PaywallTest.self)
        #expect(handle.group == .annualFirst)
        handle.hit()
        try await test.client.login(userID: "ann")
        for service in [first, service()] {
            #expect(service.userID == "ann")
            #expect(service.keptSplitTest(PaywallTest.self)?.group == .annualFirst)
            let again = await service.fetchSplitTest(PaywallTest.self)
            #expect(again.group == .annualFirst && again.source == .local)
            again.hit()
        }
        // A view may still have the handle of before the login.
        handle.hit()
        #expect(try await exposedUsers() == [anonymousID])
        #expect(analytics.calls.count == 1)
    }

    @Test func `A hit after the login counts for the account`() async throws {
        try await test.client.initializeAnonymously()
        let handle = await service(drawing: 2).fetchSplitTest(PaywallTest.self)
        try await test.client.login(userID: "ann")
        handle.hit()
        await service().fetchSplitTest(PaywallTest.self).hit()
        #expect(try await exposedUsers() == ["ann"])
        #expect(analytics.calls == ["split_test-paywall=annual_first"])
    }

    @Test func `After a logout the next user begins anew, and a former one has the former group`() async throws {
        // One service, whose draw changes: another one would draw for each next user, too.
        let index = Locked(2)
        let service = SplitTestService(client: test.client, storage: storage, analytics: analytics) { _ in
            index.withLock { $0 }
        }
        try await test.client.initializeAnonymously()
        await service.fetchSplitTest(PaywallTest.self).hit()
        try await test.client.login(userID: "ann")
        #expect(await service.fetchSplitTest(PaywallTest.self).group == .annualFirst)
        index.withLock { $0 = 1 }
        try await test.client.logout()
        let drawn = await service.fetchSplitTest(PaywallTest.self)
        #expect(drawn.group == .controlCheck)
        drawn.hit()
        let exposed = try await exposedUsers()
        #expect(exposed.count == 2 && exposed.last == test.client.anonymousUserID)
        index.withLock { $0 = 0 }
        try await test.client.initialize(user: HoldfastUser(id: "cyd"))
        #expect(await service.fetchSplitTest(PaywallTest.self).group == .control)
        try await test.client.initialize(user: HoldfastUser(id: "ann"))
        #expect(await service.fetchSplitTest(PaywallTest.self).group == .annualFirst)
    }

    @Test func `Where a server is asked, a view that cannot wait has the fallback until the group is known`()
        async throws
    {
        server.assign(.group("annual_first"))
        try await test.client.initializeAnonymously()
        let service = service()
        let (changes, continuation) = AsyncStream.makeStream(of: Set<String>.self)
        service.addUpdateListener { continuation.yield($0) }
        let before = service.splitTest(PaywallTest.self)
        #expect(before.group == .control && !before.isParticipating)
        for await tests in changes {
            #expect(tests == ["paywall"])
            break
        }
        #expect(service.splitTest(PaywallTest.self).group == .annualFirst)
    }

    @Test func `Listeners are told when another user has another group`() async throws {
        try await test.client.initializeAnonymously()
        server.assign(.group("control"))
        let service = service()
        let (changes, continuation) = AsyncStream.makeStream(of: Set<String>.self)
        service.addUpdateListener { continuation.yield($0) }
        _ = await service.fetchSplitTest(PaywallTest.self)
        server.assign(.group("annual_first"))
        try await test.client.logout()
        for await tests in changes {
            #expect(tests == ["paywall"])
            break
        }
        #expect(await service.fetchSplitTest(PaywallTest.self).group == .annualFirst)
    }

    @Test func `A login that the server does not know yet is named when it is asked for a group`() async throws {
        try await test.client.initializeAnonymously()
        let anonymousID = test.client.anonymousUserID
        server.assign(.group("control"))
        test.server.respond { call throws(HoldfastError) in
            guard call.path == "/v1/assign" else { throw .unreachable("only assignments work") }
            return .json(
                #"{"experiment_id":"70","experiment_key":"paywall","variation_id":"1","variation_key":"control","source":"stored"}"#
            )
        }
        try await test.client.login(userID: "ann")
        _ = await service().fetchSplitTest(PaywallTest.self)
        let call = try #require(test.server.calls("/v1/assign").last)
        #expect(call.json["user_id"] == "ann" && call.json["anonymous_id"] == .string(anonymousID))
    }

    @Test func `A group that another library has stored is the first user's alone`() async throws {
        storage.set("control_check", forKey: "split_test_database-paywall")
        try await test.client.initialize(user: HoldfastUser(id: "ann"))
        #expect(service().keptSplitTest(PaywallTest.self)?.group == .controlCheck)
        try await test.client.initialize(user: HoldfastUser(id: "bob"))
        #expect(service().keptSplitTest(PaywallTest.self) == nil)
        try await test.client.logout()
        #expect(service().keptSplitTest(PaywallTest.self) == nil)
        try await test.client.initialize(user: HoldfastUser(id: "ann"))
        #expect(service().keptSplitTest(PaywallTest.self)?.group == .controlCheck)
    }
}
