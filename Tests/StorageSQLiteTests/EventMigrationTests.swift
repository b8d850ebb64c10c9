import Bucketing
import Migrations
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("A database from before goals were tallied")
    struct EventMigrationTests {
        private static func impression(_ user: String, _ variation: String, at time: Int) -> String {
            let payload = #"{"rule_key":"checkout","experiment_id":"7","variation_id":"\#(variation)"}"#
            return "('impression', 'sdk', '\(user)', \(time), '\(payload)')"
        }

        private static func conversion(_ user: String, _ tags: String, at time: Int) -> String {
            "('conversion', 'sdk', '\(user)', \(time), '{\"event_key\":\"buy\",\"event_id\":\"1\",\"tags\":\(tags)}')"
        }

        @Test("Recorded events are migrated and tallied")
        func carriesOver() throws {
            let directory = try TemporaryDirectory()
            let path = directory.file("holdfast.db")
            let rows = [
                Self.impression("u", "a", at: 100), Self.impression("u", "a", at: 200),
                Self.impression("u", "", at: 50),
                Self.conversion("u", #"{"revenue":250}"#, at: 90),
                Self.conversion("u", #"{"value":1.5,"revenue":3}"#, at: 110),
                Self.impression("v", "a", at: 100), Self.impression("v", "b", at: 200),
                Self.conversion("v", "{}", at: 300),
                Self.conversion("nobody", #"{"value":"x"}"#, at: 300),
            ]
            do {
                let old = try RawDatabase(path)
                for step in Migrations.all.prefix(2) { try old.execute(String(decoding: step, as: UTF8.self)) }
                try old.execute(
                    "INSERT INTO events (kind, sdk_key, user_id, received_at, payload) VALUES \(rows.joined(separator: ","))"
                )
                try old.execute("PRAGMA application_id = 0x48644674; PRAGMA user_version = 2")
            }
            let store = try SQLiteStore(SQLiteConfiguration(path: path))
            defer { store.close() }
            let tally = try #require(try store.tallies(experimentID: "7", goal: "buy").first)
            #expect((tally.variationID, tally.counted, tally.crossed) == ("a", 1, 1))
            #expect((tally.goal.y.value, tally.goal.x.value, tally.goal.xy.value) == (1.5, 250, 375))
            #expect((tally.goal.events, tally.goal.converted, tally.goal.convertedBefore) == (1, 1, 1))
            #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.happenedAt) == [100, 100])
            #expect(try store.goalEvents(after: 0, limit: 9).map(\.event.value) == [250, 1.5, 0, 0])
            #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.experimentKey) == ["checkout", "checkout"])
        }
    }
}
