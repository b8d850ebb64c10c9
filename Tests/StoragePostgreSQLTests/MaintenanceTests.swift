import Bucketing
import Chronology
import PostgreSQLTestSupport
import Storage
import TestSupport
import Testing

@testable import StoragePostgreSQL

extension PostgreSQLTests {
    @Suite("Maintenance")
    struct MaintenanceTests {
        @Test
        func `Many tallies are folded in one sweep, also while a change of projects takes its time`() async throws {
            let database = try TestDatabase()
            try PostgreSQLStore.make(in: database).close()
            let locker = try SQLConnection(database.server.url(database.name))
            try locker.execute("BEGIN; SELECT FROM project_state FOR UPDATE")
            try database.execute(
                """
                INSERT INTO tallies (experiment_id, variation_id, period, day, goal, counts, sums)
                SELECT 'e', 'a', 0, 1, CASE WHEN number % 2 = 0 THEN 'g' END, ARRAY[1, 0, 0, 0],
                    ARRAY[0.1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
                FROM generate_series(1, 30000) AS number
                """)
            // The sweeps of the first minute are one.
            let store = try PostgreSQLStore.make(in: database) { $0.settings.retentionInterval = 0.5 }
            defer { store.close() }
            let folded = { try database.execute("SELECT is_total, count(*) FROM tallies GROUP BY 1") == [["t", "2"]] }
            try await eventually(folded)
            let tally = try #require(try store.tallies(experimentID: "e", goal: "g").first)
            #expect((tally.counted, tally.goal.events) == (15_000, 15_000))
            #expect(abs(tally.goal.y.value - 1_500) < 1e-9)
            try locker.execute("ROLLBACK")
            // Later rows join the totals.
            _ = try await store.record([StoreContract.exposure("u")])
            try await eventually {
                try database.execute("SELECT count(*) FROM tallies WHERE NOT is_total") == [["0"]]
            }
            #expect(try store.tallies(experimentID: "e", goal: "g").map(\.counted).reduce(0, +) == 15_001)
        }

        @Test
        func `Of a user about whom nothing is stored any more no row is left`() async throws {
            let database = try TestDatabase()
            let clock = ManualClock()
            let store = try PostgreSQLStore.make(in: database) {
                $0.settings.rules = ProfileRules(assignmentTTL: .seconds(10))
                $0.settings.clock = clock.wallClock
                $0.settings.retentionInterval = 0.05
            }
            defer { store.close() }
            for user: Identifier in ["expired", "exposed", "forced", "described", "renewed"] {
                try await store.apply(.save(["e": "v"], onConflict: .replace), to: user)
            }
            _ = try await store.record([StoreContract.exposure("exposed")])
            try await store.force("v", userID: "forced")
            try await store.define(AttributeDefinition(name: "age", number: 0, type: .number))
            try await store.update([1: .set(.number(5))], of: "described")
            try await store.update([1: .set(.number(5))], of: "removed")
            try await store.update([1: .remove], of: "removed")
            clock.advance(by: .seconds(60))
            try await store.apply(.save(["e": "w"], onConflict: .replace), to: "renewed")
            let left = "SELECT user_id, profile IS NULL, attributes IS NULL, expires_at IS NULL FROM users ORDER BY 1"
            try await eventually {
                try database.execute(left) == [
                    ["described", "t", "f", "t"], ["exposed", "t", "t", "t"], ["forced", "t", "t", "t"],
                    ["renewed", "f", "t", "f"],
                ]
            }
        }

        @Test
        func `An assignment that is renewed again and again changes the index of expiry seldom`() async throws {
            let database = try TestDatabase()
            let clock = ManualClock()
            let store = try PostgreSQLStore.make(in: database) {
                $0.settings.rules = ProfileRules(assignmentTTL: .seconds(30 * 86_400))
                $0.settings.clock = clock.wallClock
            }
            defer { store.close() }
            var values: Set<String?> = []
            for hour in 0..<12 {
                try await store.apply(.save(["e": Identifier("v\(hour)")], onConflict: .replace), to: "user")
                values.formUnion(try database.execute("SELECT expires_at FROM users").map { $0[0] })
                clock.advance(by: .seconds(3_600))
            }
            #expect(values.count <= 2)
            let reader = try store.makeReader()
            defer { reader.close() }
            let record = try #require(try reader.profile(of: "user"))
            for now in [0, 1, clock.wallClock(), .distantFuture - 1] as [Instant] {
                let (exact, rounded) = (try #require(record.earliestExpiry), try #require(record.sweptAt(from: now)))
                #expect((exact...exact + .milliseconds(1 << 26)).contains(rounded))
            }
        }
    }
}

/// Waits until something holds; the test's time limit ends the wait.
func eventually(_ condition: () throws -> Bool) async throws {
    let deadline = ContinuousClock.now + .seconds(60)
    while try !condition() {
        guard .now < deadline else { throw NeverHeld() }
        try await Task.sleep(for: .milliseconds(10))
    }
}

private struct NeverHeld: Error {}
