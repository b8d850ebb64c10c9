import Foundation
import HoldfastClient
import Synchronization
import Testing

/// Split tests without a server: groups drawn at random, kept by a storage of the app's choice.
struct LocalSplitTestTests {
    @Test func eachGroupIsDrawnFromAllOfThem() async {
        let request = SplitTestRequest(userID: "ann", testKey: "paywall", groups: ["a", "b", "c"])
        for (index, group) in request.groups.enumerated() {
            let assigner = RandomSplitTestAssigner { count in
                #expect(count == 3)
                return index
            }
            #expect(await assigner.assignment(for: request)?.variationKey == group)
        }
    }

    @Test func theChancesAreEqual() async {
        let assigner = RandomSplitTestAssigner()
        let request = SplitTestRequest(userID: "ann", testKey: "paywall", groups: ["a", "b", "c", "d"])
        var counts: [String: Int] = [:]
        for _ in 0..<8_000 { counts[await assigner.assignment(for: request)?.variationKey ?? "none", default: 0] += 1 }

        // A binomial count of mean 2,000 and deviation 38.7: 6 deviations either way, missed once in 10^8 runs.
        #expect(counts.count == 4)
        #expect(counts.values.allSatisfy { (1_768...2_232).contains($0) }, "\(counts)")
    }

    @Test func aGroupKeptInAFileOutlivesTheService() async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        defer { try? FileManager.default.removeItem(at: directory) }
        let file = directory.appending(path: "split-tests.json")

        var groups: Set<PaywallTest.Group?> = []
        for draw in [2, 0, 1, 2] {
            let service = SplitTestService(
                userID: "ann", assigner: RandomSplitTestAssigner { _ in draw }, storage: FileSplitTestStorage(file: file))
            try await service.refresh(PaywallTest.self)
            groups.insert(try await service.hit(PaywallTest.self))
        }
        #expect(groups == [.annualFirst])
    }

    @Test func aDamagedFileIsAnErrorAndNotANewGroup() async throws {
        let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        defer { try? FileManager.default.removeItem(at: file) }
        try Data("{".utf8).write(to: file)
        let service = SplitTestService(
            userID: "ann", assigner: RandomSplitTestAssigner(), storage: FileSplitTestStorage(file: file))
        do throws(SplitTestError) {
            _ = try await service.group(of: PaywallTest.self)
            Issue.record("no error")
        } catch {
            guard case .storage = error else {
                Issue.record("\(error)")
                return
            }
        }
    }

    @Test func aFileForgetsWhatIsRemoved() async throws {
        let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        defer { try? FileManager.default.removeItem(at: file) }
        let storage = FileSplitTestStorage(file: file)
        try await storage.set("a", forKey: "1")
        try await storage.set("b", forKey: "2")
        try await storage.set(nil, forKey: "1")

        let reopened = FileSplitTestStorage(file: file)
        #expect(try await reopened.value(forKey: "1") == nil)
        #expect(try await reopened.value(forKey: "2") == "b")
    }
}
