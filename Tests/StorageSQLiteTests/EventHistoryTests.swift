import Bucketing
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    /// Random histories: what was counted up while they happened is what counting from scratch gives.
    @Suite("Tallies of random histories")
    struct EventHistoryTests {
        @Test("Tallies are those of a count from scratch", arguments: 1...8)
        func recount(seed: UInt64) async throws {
            let directory = try TemporaryDirectory()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            var random = SeededGenerator(seed: seed)
            var ledger = EventLedger()
            for _ in 0..<60 {
                let user = EventLedger.users.randomElement(using: &random) ?? "0"
                let experiment = EventLedger.experiments.randomElement(using: &random) ?? "e"
                switch Int.random(in: 0..<20, using: &random) {
                case 0:
                    try await store.apply(.erase, to: user)
                    ledger.erase(user)
                case 1:
                    try await store.apply(.override(experimentID: experiment, variationID: "a"), to: user)
                    ledger.override(user, experiment)
                default:
                    let events = (0..<20).map { _ in EventLedger.randomEvent(&random) }
                    _ = try await store.record(events)
                    for event in events { ledger.record(event) }
                }
            }
            try expectTallies(of: store, toEqual: ledger)
        }

        @Test("The order in which events arrive makes no difference", arguments: 1...4)
        func anyOrder(seed: UInt64) async throws {
            var random = SeededGenerator(seed: 1_000 + seed)
            var ledger = EventLedger()
            var events: [UserEvent] = []
            for index in 0..<400 {
                let event = EventLedger.randomEvent(&random, offset: Timestamp(index))
                events.append(event)
                ledger.record(event)
            }
            for _ in 0..<3 {
                let directory = try TemporaryDirectory()
                let store = try SQLiteStore.make(in: directory)
                defer { store.close() }
                var rest = events.shuffled(using: &random)[...]
                while !rest.isEmpty {
                    let count = Int.random(in: 1...50, using: &random)
                    _ = try await store.record(Array(rest.prefix(count)))
                    rest = rest.dropFirst(count)
                }
                try expectTallies(of: store, toEqual: ledger)
            }
        }

        private func expectTallies(of store: SQLiteStore, toEqual ledger: EventLedger) throws {
            for experiment in EventLedger.experiments {
                for goal in EventLedger.goals {
                    let counted = try store.tallies(experimentID: experiment, goal: goal)
                        .filter { $0.counted + $0.crossed + $0.forced > 0 }
                    let expected = ledger.tallies(experiment, goal)
                    #expect(counted.map(\.variationID) == expected.map(\.variationID))
                    for (counted, expected) in zip(counted, expected) {
                        #expect(counted.counted == expected.counted && counted.crossed == expected.crossed)
                        #expect(counted.forced == expected.forced)
                        expectSums(counted.goal, expected.goal)
                    }
                }
            }
        }

        private func expectSums(_ counted: GoalTally, _ expected: GoalTally) {
            #expect(
                [counted.events, counted.converted, counted.convertedBefore, counted.convertedBoth]
                    == [expected.events, expected.converted, expected.convertedBefore, expected.convertedBoth])
            for sum in [\GoalTally.y, \.yy, \.x, \.xx, \.xy] {
                let (counted, expected) = (counted[keyPath: sum].value, expected[keyPath: sum].value)
                #expect(abs(counted - expected) <= 1e-12 * max(1, abs(expected)))
            }
        }
    }
}
