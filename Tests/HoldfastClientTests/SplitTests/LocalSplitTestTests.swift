import Foundation
import ProcessTestSupport
import Testing

@testable import HoldfastClient

/// Split tests without a server, and their storages.
@Suite struct LocalSplitTestTests {
    private func service(
        _ storage: any SplitTestStorage, analytics: (any SplitTestAnalytics)? = nil,
        draw: @escaping @Sendable (Int) -> Int = { _ in 0 }
    ) -> SplitTestService {
        SplitTestService(client: nil, storage: storage, analytics: analytics, draw: draw)
    }

    @Test func `A view that cannot wait has a group at once, which stays`() async {
        let storage = InMemorySplitTestStorage()
        let analytics = RecordingAnalytics()
        let draws = Log<Int>()
        let tests = SplitTestService(client: nil, storage: storage, analytics: analytics) { count in
            draws.add(count)
            return 2
        }
        #expect(tests.keptSplitTest(PaywallTest.self) == nil)
        let handle = tests.splitTest(PaywallTest.self)
        #expect(handle.group == .annualFirst && handle.source == .local && handle.isParticipating)
        handle.hit()
        #expect(analytics.calls == ["split_test-paywall=annual_first"])
        let later = SplitTestService(client: nil, storage: storage) { _ in 0 }
        #expect(later.splitTest(PaywallTest.self).group == .annualFirst)
        #expect(await later.fetchSplitTest(PaywallTest.self).group == .annualFirst)
        #expect(draws.all == [3])
    }

    @Test func `Each group is drawn from all of them, but not a retired one`() async {
        for (index, group) in PaywallTest.Group.allCases.enumerated() {
            let service = service(InMemorySplitTestStorage()) { count in
                #expect(count == 3)
                return index
            }
            #expect(await service.fetchSplitTest(PaywallTest.self).group == group)
        }
        let later = service(InMemorySplitTestStorage()) { count in
            #expect(count == 2)
            return 1
        }
        #expect(await later.fetchSplitTest(LaterPaywallTest.self).group == .controlCheck)
    }

    @Test func `The chances are equal`() async {
        var counts: [PaywallTest.Group: Int] = [:]
        for _ in 0..<6_000 {
            let service = SplitTestService(client: nil, userID: "ann", storage: InMemorySplitTestStorage())
            counts[await service.fetchSplitTest(PaywallTest.self).group, default: 0] += 1
        }
        // A binomial count of mean 2,000 and deviation 36.5: 6 deviations either way, missed once in 10^8 runs.
        #expect(counts.count == 3)
        #expect(counts.values.allSatisfy { (1_781...2_219).contains($0) }, "\(counts)")
    }

    @Test func `Groups that were stored in the common format are kept`() async {
        let storage = InMemorySplitTestStorage(["split_test_database-paywall": "annual_first"])
        let analytics = RecordingAnalytics()
        let service = service(storage, analytics: analytics)
        #expect(service.keptSplitTest(PaywallTest.self)?.group == .annualFirst)
        let handle = await service.fetchSplitTest(PaywallTest.self)
        #expect(handle.group == .annualFirst && handle.source == .local)
        handle.hit()
        #expect(analytics.calls == ["split_test-paywall=annual_first"])
        // A retired group is recognized, an unknown one is drawn anew.
        #expect(await self.service(storage).fetchSplitTest(LaterPaywallTest.self).group == .annualFirst)
        storage.set("weekly", forKey: "split_test_database-paywall")
        #expect(await self.service(storage).fetchSplitTest(PaywallTest.self).group == .control)
        #expect(storage.string(forKey: "split_test_database-paywall") == "control")
    }

    @Test func `An anonymous user keeps the same id`() async {
        let storage = InMemorySplitTestStorage()
        let first = service(storage)
        #expect(first.userID == service(storage).userID)
        #expect(first.userID != service(InMemorySplitTestStorage()).userID)
        #expect(UUID(uuidString: first.userID) != nil)
    }

    @Test func `A group kept in a file or in UserDefaults outlives the service`() async throws {
        let directory = try TemporaryDirectory()
        let suite = "holdfast-\(UUID().uuidString)"
        let defaults = try #require(UserDefaults(suiteName: suite))
        defer { defaults.removePersistentDomain(forName: suite) }
        for storage in [
            { FileSplitTestStorage(file: directory.url.appending(path: "groups/split-tests.json")) },
            { UserDefaultsSplitTestStorage(defaults) },
        ] as [() -> any SplitTestStorage] {
            var groups: Set<PaywallTest.Group> = []
            for draw in [2, 0, 1, 2] {
                let service = service(storage()) { _ in draw }
                await service.refresh(PaywallTest.self)
                groups.insert(await service.fetchSplitTest(PaywallTest.self).group)
            }
            #expect(groups == [.annualFirst])
        }
        #expect(defaults.string(forKey: "split_test_database-paywall") == "annual_first")
    }

    @Test func `UserDefaults keep a group although the process ends at once`() async throws {
        let home = try TemporaryDirectory()
        for line in ["stored", "kept red"] {
            let program = try Program(
                "client-process", ["http://holdfast.test", home.url.path, "defaults"],
                environment: ["HOME": home.url.path, "CFFIXED_USER_HOME": home.url.path], reading: .standard)
            #expect(await program.line { _ in true } == line)
            #expect(await program.end() == .exit(0))
        }
    }

    @Test func `A storage that cannot be read for a while keeps the anonymous user`() throws {
        let storage = FailingStorage()
        let id = service(storage).userID
        storage.fail(reads: true)
        #expect(service(storage).userID != id)
        storage.fail()
        #expect(service(storage).userID == id)
    }

    @Test func `A damaged file is an error and not a new group`() async throws {
        let directory = try TemporaryDirectory()
        let file = directory.url.appending(path: "damaged.json")
        try Data("{".utf8).write(to: file)
        let handle = await service(FileSplitTestStorage(file: file)).fetchSplitTest(PaywallTest.self)
        #expect(!handle.isParticipating)
        guard case .storage = handle.error else {
            Issue.record("\(String(describing: handle.error))")
            return
        }
    }

    @Test func `A file forgets what is removed`() throws {
        let directory = try TemporaryDirectory()
        let file = directory.url.appending(path: "split-tests.json")
        let storage = FileSplitTestStorage(file: file)
        try storage.set("a", forKey: "1")
        try storage.set("b", forKey: "2")
        try storage.set(nil, forKey: "1")

        let reopened = FileSplitTestStorage(file: file)
        #expect(try reopened.string(forKey: "1") == nil)
        #expect(try reopened.string(forKey: "2") == "b")
    }
}
