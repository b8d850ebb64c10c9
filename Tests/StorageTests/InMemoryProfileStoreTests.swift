import Bucketing
import Storage
import TestSupport
import Testing

@Suite("In-memory profile store")
struct InMemoryProfileStoreTests {
    @Test("Keeps the contract", arguments: ProfileStoreContract.cases)
    func contract(_ contract: ProfileStoreContract) async throws {
        try await contract.run { rules, clock in
            InMemoryProfileStore(rules: rules, clock: clock)
        }
    }

    @Test("Expired profiles do not stay in memory")
    func sweep() async throws {
        let clock = ManualClock()
        let store = InMemoryProfileStore(rules: ProfileRules(assignmentTTL: .seconds(1)), clock: clock.wallClock)
        for number in 0..<2_000 {
            try await store.apply(.replace(["e": "v"]), to: .init("user\(number)"))
            clock.advance(by: .milliseconds(10))
        }
        #expect(store.statistics().profiles < 1_500)
        #expect(store.statistics().expiredAssignments > 500)
    }
}
