import Bucketing
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Exposures and goal events")
    struct EventTests {
        private let directory: TemporaryDirectory
        private let store: SQLiteStore

        init() throws {
            directory = try TemporaryDirectory()
            store = try SQLiteStore.make(in: directory)
        }

        /// The tally of the only variation there is.
        private func tally() throws -> VariationTally {
            try #require(try store.tallies(experimentID: "e", goal: "g").first)
        }

        @Test(
            arguments: [
                "exposures SET happened_at", "user_goals SET after_count", "user_goals SET before_count",
                "variation_users SET counted", "variation_goals SET events",
            ], [Int64.min, Int64.max])
        func `No damaged number in the file stops the process`(column: String, number: Int64) async throws {
            _ = try await store.record([StoreContract.exposure("u"), StoreContract.goal("u")])
            try RawDatabase(directory.file("holdfast.db")).execute("UPDATE \(column) = \(number)")
            _ = try? await store.record([
                StoreContract.goal("u", at: 2), StoreContract.exposure("u", "b", at: 3),
                StoreContract.exposure("u", at: -9),
            ])
            _ = try tally()
            _ = try? await store.apply(.erase, to: "u")
            store.close()
        }

        @Test
        func `Erasing a user leaves no rows`() async throws {
            _ = try await store.record([
                StoreContract.exposure("u"), StoreContract.goal("u", 0.1), StoreContract.exposure("v"),
                StoreContract.goal("v", 0.7, id: "1"),
            ])
            try await store.apply(.erase, to: "v")
            let left = try RawDatabase(store.configuration.path).value(
                "SELECT count(*) FROM exposures, user_goals WHERE exposures.user_id = 'v' OR user_goals.user_id = 'v'")
            #expect(left == "0")
        }

        @Test
        func `Goal events are deleted after their retention, and stay tallied`() async throws {
            let directory = try TemporaryDirectory()
            let clock = ManualClock(now: StoreContract.noon)
            let store = try SQLiteStore.make(in: directory, clock: clock) {
                $0.settings.eventRetention = 0
                $0.settings.retentionInterval = 0.01
                $0.settings.retentionBatch = 2
            }
            defer { store.close() }
            _ = try await store.record([StoreContract.exposure("u")] + (1...5).map { StoreContract.goal("u", at: $0) })
            clock.advance(by: .milliseconds(EventRules.minimumRetention + 5))
            while try store.goalEvents(after: 0, limit: 9).count > 1 { try await Task.sleep(for: .milliseconds(1)) }
            #expect(try store.goalEvents(after: 0, limit: 9).map(\.event.happenedAt) == [StoreContract.noon + 5])
            #expect(try store.tallies(experimentID: "e", goal: "g").first?.goal.events == 5)
        }
    }
}
