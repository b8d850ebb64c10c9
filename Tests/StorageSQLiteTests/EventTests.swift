import Bucketing
import Chronology
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
            _ = try await store.record(
                [StoreContract.exposure("u")] + (1...5).map { StoreContract.goal("u", at: .milliseconds($0)) })
            clock.advance(by: EventRules.minimumRetention + 5)
            while try store.goalEvents(after: 0, limit: 9).count > 1 { try await Task.sleep(for: .milliseconds(1)) }
            #expect(try store.goalEvents(after: 0, limit: 9).map(\.event.happenedAt) == [StoreContract.noon + 5])
            #expect(try store.tallies(experimentID: "e", goal: "g").first?.goal.events == 5)
        }

        @Test
        func `A series tracked after events were deleted says what it lacks, and others keep what they counted`()
            async throws
        {
            let directory = try TemporaryDirectory()
            let clock = ManualClock(now: StoreContract.noon)
            let store = try SQLiteStore.make(in: directory, clock: clock) {
                $0.settings.eventRetention = 0
                $0.settings.retentionInterval = 0.01
            }
            defer { store.close() }
            let filler = try SeriesFiller(store)
            defer { filler.close() }
            let count = SeriesDefinition(.sum(.init("g", .count), cap: nil))
            let value = SeriesDefinition(.sum(.init("g", .value), cap: 100))
            _ = try await store.activate("1", sdkKey: "sdk", series: ["e": [count]])
            try await filler.run()
            _ = try await store.record(
                [StoreContract.exposure("u")] + (1...5).map { StoreContract.goal("u", at: .milliseconds($0)) })
            clock.advance(by: EventRules.minimumRetention + 5)
            while try store.goalEvents(after: 0, limit: 9).count > 1 { try await Task.sleep(for: .milliseconds(1)) }
            _ = try await store.activate("2", sdkKey: "sdk", series: ["e": [count, value]])
            try await filler.run()
            let series = try store.read(StoreQuery.series(experimentID: "e"))
            #expect(series.map(\.definition) == [count, value])
            #expect(series.map(\.since) == [0, StoreContract.noon + 5])
            func sums() throws -> [Double] {
                try series.map { series in
                    try store.tallies(experimentID: "e", goal: series.names[0]).reduce(0) { $0 + $1.goal.y.value }
                }
            }
            #expect(try sums() == [5, 1])
            try await store.merge("u", into: "account")
            #expect(try sums() == [5, 1])
        }
    }
}
