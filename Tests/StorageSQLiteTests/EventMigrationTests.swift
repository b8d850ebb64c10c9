import Bucketing
import Chronology
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

        @Test
        func `Recorded events are migrated and tallied`() throws {
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
                for step in Migrations.sqlite.prefix(2) { try old.execute(String(decoding: step, as: UTF8.self)) }
                try old.execute(
                    "INSERT INTO events (kind, sdk_key, user_id, received_at, payload) VALUES \(rows.joined(separator: ","))"
                )
                try old.execute("PRAGMA application_id = 0x48644674; PRAGMA user_version = 2")
            }
            let store = try SQLiteStore(SQLiteConfiguration(path: path))
            defer { store.close() }
            let tally = try #require(try store.tallies(experimentID: "7", goal: "buy").first)
            #expect((tally.variationID, tally.counted, tally.multipleVariations) == ("a", 1, 1))
            #expect((tally.goal.y.value, tally.goal.x.value, tally.goal.xy.value) == (1.5, 250, 375))
            #expect((tally.goal.events, tally.goal.converted, tally.goal.convertedBefore) == (1, 1, 1))
            #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.happenedAt) == [100, 100])
            #expect(try store.goalEvents(after: 0, limit: 9).map(\.event.value) == [250, 1.5, 0, 0])
            #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.experimentKey) == ["checkout", "checkout"])
        }

        @Test
        func `Exposures are divided among the allocations of the stored datafiles, and sums among days`() throws {
            let directory = try TemporaryDirectory()
            let path = directory.file("holdfast.db")
            let day = 86_400_000
            func datafile(_ end: Int) -> String {
                let allocation = #"[{"entityId":"a","endOfRange":\#(end)}]"#
                return #"{"experiments":[{"id":"7","trafficAllocation":\#(allocation)}],"groups":[{"experiments":[]}]}"#
            }
            do {
                let old = try RawDatabase(path)
                for step in Migrations.sqlite.prefix(6) { try old.execute(String(decoding: step, as: UTF8.self)) }
                for (end, time) in [(5_000, 2 * day), (5_000, 3 * day), (9_000, 4 * day)] {
                    try old.execute(
                        """
                        INSERT INTO datafiles (sdk_key, revision, content, stored_at, author)
                        VALUES ('sdk', '1', CAST('\(datafile(end))' AS BLOB), \(time), 'test')
                        """)
                }
                for (user, time, flags) in [("u", day, 0), ("v", 3 * day, 0), ("w", 5 * day, 0), ("x", 5 * day, 1)] {
                    try old.execute(
                        """
                        INSERT INTO exposures (user_id, experiment_id, experiment_key, variation_id, happened_at, flags,
                            sdk_key, payload) VALUES ('\(user)', '7', 'checkout', 'a', \(time), \(flags), 'sdk', '{}');
                        INSERT INTO user_goals VALUES ('\(user)', '7', 'buy', 0, 0.0, 1, 1e9);
                        """)
                }
                try old.execute(
                    """
                    INSERT INTO variation_users VALUES ('7', 'a', 3, 1, 0);
                    INSERT INTO variation_goals VALUES
                        ('7', 'buy', 'a', 3, 3, 0, 0, 3e9, 1e-9, 3e18, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
                    PRAGMA application_id = 0x48644674; PRAGMA user_version = 6;
                    """)
            }
            let store = try SQLiteStore(SQLiteConfiguration(path: path))
            defer { store.close() }
            let tally = try store.tally(experimentID: "7", goal: "buy")
            #expect(tally.periods.map(\.number) == [1, 3])
            #expect(tally.periods.last?.allocation.ranges.map(\.end) == [9_000])
            #expect(tally.countedByPeriod == [1: ["a": 2], 3: ["a": 1]])
            #expect(tally.days.map(\.day) == [1, 3, 5])
            #expect(tally.days.last?.variations.first?.users == UserCounts(counted: 1, multipleVariations: 1))
            let total = try #require(tally.variations.first)
            #expect(total.users == UserCounts(counted: 3, multipleVariations: 1) && total.goal.converted == 3)
            #expect(total.goal.y == CompensatedSum(3e9) + CompensatedSum(1e-9))
            #expect(total.goal.yy == CompensatedSum(3e18) + CompensatedSum(5))
        }
    }
}
