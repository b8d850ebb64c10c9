import Foundation
import Testing

@testable import HoldfastClient

private enum UnknownTest: SplitTest {
    static let identifier = "unknown"

    enum Group: String, CaseIterable, SplitTestGroup { case control }
}

/// Split tests whose groups a running server assigns.
@Suite(.timeLimit(.minutes(5))) struct SplitTestServerTests {
    private let directory: TemporaryDirectory
    private let server: RealServer
    private let client: HoldfastClient

    init() async throws {
        directory = try TemporaryDirectory()
        server = try await RealServer()
        try await server.request(
            "PUT", "/v1/experiments/paywall", #"{"id":"70","variations":["control","control_check","annual_first"]}"#)
        client = try server.client(in: directory)
    }

    private func service(
        _ userID: String, _ own: HoldfastClient? = nil, storage: any SplitTestStorage = InMemorySplitTestStorage()
    ) -> SplitTestService {
        SplitTestService(client: own ?? client, userID: userID, storage: storage, timeLimit: .seconds(60)) { _ in 2 }
    }

    @Test func `The server's groups are all given, and are the same on every device`() async throws {
        var groups: Set<PaywallTest.Group> = []
        for number in 0..<40 {
            let first = await service("user\(number)").fetchSplitTest(PaywallTest.self)
            #expect(first.source == .server)
            #expect(await service("user\(number)").fetchSplitTest(PaywallTest.self).group == first.group)
            groups.insert(first.group)
        }
        #expect(groups == Set(PaywallTest.Group.allCases))
        #expect(try await server.exposures().isEmpty)
        client.destroy()
    }

    @Test func `The exposure is reported at the hit, once over all runs and devices`() async throws {
        let storage = InMemorySplitTestStorage()
        for _ in 0..<2 { await service("ada", storage: storage).fetchSplitTest(PaywallTest.self).hit() }
        #expect(client.waitingEvents == 1)
        await service("ada").fetchSplitTest(PaywallTest.self).hit()
        try await client.flush()
        #expect(try await server.exposures().count == 1)
        client.destroy()
    }

    @Test(arguments: [true, false])
    func `The first user of a client keeps the group that was shown before`(logsIn: Bool) async throws {
        client.destroy()
        for number in 0..<10 {
            let (directory, userID) = (try TemporaryDirectory(), "user\(number)")
            let client = try server.client(in: directory)
            let tests = SplitTestService(
                client: client, storage: InMemorySplitTestStorage(), timeLimit: .seconds(60))
            let shown = await tests.fetchSplitTest(PaywallTest.self)
            #expect(shown.source == .server && tests.userID == client.anonymousUserID)
            if logsIn {
                try await client.login(userID: userID, timeout: .seconds(60))
            } else {
                try await client.initialize(user: HoldfastUser(id: userID), timeout: .seconds(60))
            }
            #expect(await tests.fetchSplitTest(PaywallTest.self).group == shown.group)
            #expect(await service(userID, client).fetchSplitTest(PaywallTest.self).group == shown.group)
            try await client.flush()
            #expect(try await client.assignment(experiment: "paywall").variationKey == shown.group.rawValue)
            // The next run has no anonymous user to take over.
            client.destroy()
            let later = try server.client(in: directory)
            try await later.login(userID: "other\(number)", timeout: .seconds(60))
            #expect(later.core.waiting(.login).isEmpty)
            later.destroy()
        }
    }

    @Test func `An override is seen by a refresh, and a kept group needs no server`() async throws {
        let storage = FileSplitTestStorage(file: directory.url.appending(path: "groups.json"))
        let tests = service("ada", storage: storage)
        let group = await tests.fetchSplitTest(PaywallTest.self).group
        let other = try #require(PaywallTest.Group.allCases.first { $0 != group })
        try await server.request("PUT", "/v1/profiles/ada/experiments/70", #"{"variation_key":"\#(other.rawValue)"}"#)
        #expect(await tests.fetchSplitTest(PaywallTest.self).group == group)
        #expect(await tests.refresh(PaywallTest.self).group == other)

        server.kill()
        #expect(await service("ada", storage: storage).fetchSplitTest(PaywallTest.self).group == other)
        client.destroy()
    }

    @Test func `A group drawn while the server was down is measured by the server`() async throws {
        server.kill()
        let storage = InMemorySplitTestStorage()
        let handle = await service("bob", storage: storage).fetchSplitTest(PaywallTest.self)
        #expect(handle.group == .annualFirst && handle.source == .local)
        handle.hit()

        let again = try await RealServer(after: server)
        #expect(await service("bob", storage: storage).fetchSplitTest(PaywallTest.self).group == .annualFirst)
        try await client.flush()
        let exposures = try await again.exposures()
        #expect(exposures.count == 1)
        #expect(exposures.first?["detail"]?["variation_key"] == "annual_first")
        #expect(exposures.first?["multiple_variations"] == false)
        // The server keeps it, so that other devices have it, too.
        let other = await service("bob").fetchSplitTest(PaywallTest.self)
        #expect(other.group == .annualFirst && other.source == .server)
        client.destroy()
    }

    @Test func `A paused test reaches the app by itself, and an unknown experiment is an error`() async throws {
        try await client.initialize(user: HoldfastUser(id: "ada"), timeout: .seconds(60))
        let tests = service("ada")
        let (changes, continuation) = AsyncStream.makeStream(of: Set<String>.self)
        tests.addUpdateListener { continuation.yield($0) }
        #expect(await tests.fetchSplitTest(PaywallTest.self).isParticipating)
        try await server.request("PUT", "/v1/experiments/paywall", #"{"status":"paused"}"#)
        for await _ in changes { break }
        let paused = await tests.fetchSplitTest(PaywallTest.self)
        #expect(!paused.isParticipating && paused.error == nil)
        paused.hit()
        #expect(client.waitingEvents == 0)
        let unknown = await tests.fetchSplitTest(UnknownTest.self)
        guard case .refused = unknown.error else {
            Issue.record("\(String(describing: unknown.error))")
            return
        }
        client.destroy()
    }

    @Test func `Exposures before a login and goals after it count for one person, who keeps the group`() async throws {
        try await client.initializeAnonymously(timeout: .seconds(60))
        let tests = SplitTestService(
            client: client, storage: InMemorySplitTestStorage(), timeLimit: .seconds(60))
        let before = await tests.fetchSplitTest(PaywallTest.self)
        #expect(before.source == .server)
        before.hit()
        try await client.login(userID: "ada", timeout: .seconds(60))
        let after = await tests.fetchSplitTest(PaywallTest.self)
        #expect(after.group == before.group && after.source == .server)
        after.hit()
        client.track(goalID: "purchase", value: 5)
        try await client.flush()
        #expect(try await server.exposures().map { $0["user_id"] } == ["ada"])
        #expect(try await server.goalEvents().map { $0["user_id"] } == ["ada"])
        #expect(try await server.exposures().first?["multiple_variations"] == false)
        client.destroy()
    }
}
