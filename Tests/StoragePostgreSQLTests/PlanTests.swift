import Bucketing
import PostgreSQLTestSupport
import Storage
import TestSupport
import Testing

@testable import StoragePostgreSQL

extension PostgreSQLTests {
    @Suite("Plans")
    struct PlanTests {
        @Test
        func `Rows of users are found by their keys, however small the tables were when connections were new`()
            async throws
        {
            // Behind a pooler and on Citus statements are planned each time.
            let database = try TestDatabase(.postgreSQL)
            try PostgreSQLStore.make(in: database).close()
            try waitForConnections(to: database)
            // To make an index is a scan, too.
            try database.execute("SELECT pg_stat_reset()")
            let store = try PostgreSQLStore.make(in: database)
            // As a table of a few users is read fastest as a whole, such a plan would be kept.
            let users = (0..<8).map { Identifier("u\($0)") }
            try await work(on: store, users)
            try database.execute("ANALYZE")
            try await work(on: store, users)
            try database.execute(
                """
                INSERT INTO users (user_id, version) SELECT 'x' || number, 1 FROM generate_series(1, 5000) AS number;
                INSERT INTO goal_events (user_id, number, goal, value, happened_at, received_at, sdk_key, payload)
                SELECT 'x' || number, -number, 'g', 1, 1, 1, 'k', '{}' FROM generate_series(1, 5000) AS number
                """)
            try await work(on: store, users)
            store.close()
            try waitForConnections(to: database)
            let scanned = try database.execute(
                """
                SELECT relname, seq_scan FROM pg_stat_user_tables WHERE seq_scan > 0 AND relname IN
                    ('users', 'exposures', 'goal_events', 'user_goals', 'forced_variations', 'sticky_documents')
                """)
            #expect(scanned == [])
        }

        @Test
        func `A goal event reads the totals of its own goal only`() async throws {
            let database = try TestDatabase(.postgreSQL)
            let store = try PostgreSQLStore.make(in: database)
            _ = try await store.record([StoreContract.exposure("u"), StoreContract.goal("u")])
            try database.execute(
                """
                INSERT INTO user_goals SELECT 'u', 'e', 'g' || number, 0, 0, 1, 1 FROM generate_series(1, 5000) AS number;
                SELECT pg_stat_reset()
                """)
            _ = try await store.record([StoreContract.goal("u", 2), StoreContract.goal("u", 3)])
            #expect(try store.tallies(experimentID: "e", goal: "g").first?.goal.events == 3)
            store.close()
            try waitForConnections(to: database)
            let read = "SELECT idx_tup_fetch < 1000 FROM pg_stat_user_tables WHERE relname = 'user_goals'"
            #expect(try database.execute(read) == [["t"]])
        }

        /// Waits for the end of all connections: each counts its scans then, if not before.
        private func waitForConnections(to database: TestDatabase) throws {
            let open = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            while try database.execute(open).count > 0 {}
        }

        /// Reads and changes users in all ways that are frequent.
        private func work(on store: PostgreSQLStore, _ users: [Identifier]) async throws {
            let reader = try store.makeReader()
            defer { reader.close() }
            for user in users {
                _ = try reader.profile(of: user)
                try await store.apply(.save(["e": "v", "f": "w"], onConflict: .replace), to: user)
                try await store.apply(.save(["e": "w"], onConflict: .replace), to: user)
                _ = try await store.record([StoreContract.exposure(user), StoreContract.goal(user)])
            }
            let erased = users[0]
            try await store.merge(users[1], into: erased)
            try await store.apply(.erase, to: erased)
        }
    }
}
