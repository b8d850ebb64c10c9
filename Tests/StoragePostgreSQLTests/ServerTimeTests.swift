import Bucketing
import Chronology
import PostgreSQLTestSupport
import Storage
import TestSupport
import Testing

@testable import StoragePostgreSQL

extension PostgreSQLTests {
    /// The time of the database, whatever clocks its servers have.
    @Suite("Server time")
    struct ServerTimeTests {
        private func microseconds(_ database: TestDatabase) throws -> Int64 {
            let rows = try database.execute("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
            return try #require(rows.first?.first?.flatMap { Int64($0) })
        }

        private func save(_ variation: Identifier, _ store: PostgreSQLStore) async throws -> Instant? {
            try await store.apply(.save(["e": variation], onConflict: .replace), to: "user").profile?["e"]?.updatedAt
        }

        @Test
        func `Times are those of the database's server`() async throws {
            let database = try TestDatabase()
            let store = try PostgreSQLStore.make(in: database)
            defer { store.close() }
            for _ in 0..<3 {
                let before = try microseconds(database) / 1_000
                let now = store.clock.now()
                let after = try microseconds(database) / 1_000
                // The measurement is exact to half of a round trip.
                #expect((before - 100...after + 100).contains(now.milliseconds))
            }
        }

        @Test
        func `The time does not go back when another machine takes over, unless by more than a day`() async throws {
            let database = try TestDatabase()
            let clock = ManualClock()
            func open() throws -> PostgreSQLStore {
                try PostgreSQLStore.make(in: database) {
                    $0.settings.clock = clock.wallClock
                    $0.settings.retentionInterval = 0.01
                }
            }
            func kept() throws -> Instant? {
                try database.execute("SELECT time FROM latest_time").first?.first?.flatMap { Int64($0) }
                    .map { Instant(milliseconds: $0) }
            }
            try await SessionPool.with {
                let first = try open()
                let last = try #require(try await save("a", first))
                while try kept() != last { try await Task.sleep(for: .milliseconds(5)) }
                first.close()
                clock.advance(by: .seconds(-1_000))
                let second = try open()
                #expect(try await save("b", second) == last)
                clock.advance(by: .seconds(-100_000))
                #expect(try await save("c", second) == clock.now)
                while try kept() != clock.now { try await Task.sleep(for: .milliseconds(5)) }
                second.close()
            }
        }

        @Test
        func `What is decided with a datafile of another server comes after it`() async throws {
            let database = try TestDatabase()
            let (ahead, behind) = (ManualClock(), ManualClock())
            ahead.advance(by: .seconds(10))
            func open(_ clock: ManualClock) throws -> PostgreSQLStore {
                try PostgreSQLStore.make(in: database) { $0.settings.clock = clock.wallClock }
            }
            let (first, second) = (try open(ahead), try open(behind))
            try await SessionPool.with {
                let stored = try await first.activate(#"{"version":"4"}"#, sdkKey: "sdk")
                #expect(stored?.storedAt == ahead.now)
                #expect(try second.datafiles(after: 0).count == 1)
                #expect(try await save("a", second) == ahead.now)
            }
            first.close()
            second.close()
        }

        @Test
        func `A measurement replaces a worse one, and any that it contradicts`() {
            var settings = StoreSettings()
            settings.clock = nil
            let time = ServerTime(settings)
            func take(ahead milliseconds: Int64, roundTrip: Int64) -> TimeSpan {
                let now = ServerTime.monotonic
                let middle = now - roundTrip * 500_000
                time.take(
                    microseconds: middle / 1_000 + milliseconds * 1_000, latest: 0, sentAt: now - roundTrip * 1_000_000)
                return time.clock.now() - Instant(milliseconds: ServerTime.monotonic / 1_000_000)
            }
            func isAbout(_ found: TimeSpan, _ expected: TimeSpan) -> Bool {
                (expected - 20...expected + 20).contains(found)
            }
            #expect(isAbout(take(ahead: 50_000, roundTrip: 1_000), 50_000))
            #expect(isAbout(take(ahead: 50_200, roundTrip: 400), 50_200))
            #expect(isAbout(take(ahead: 50_300, roundTrip: 900), 50_200))
            #expect(isAbout(take(ahead: 51_500, roundTrip: 900), 51_500))
        }
    }
}
