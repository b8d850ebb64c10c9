import Bucketing
import Glibc
import PostgreSQLTestSupport
import Storage
import TestSupport
import Testing

@testable import StoragePostgreSQL

extension PostgreSQLTests {
    /// A database that is distributed by Citus, where the extension is installed; Debian has no package of it. With
    /// `HOLDFAST_TEST_DATABASE=citus` in the environment all tests of the store run on such a database, and those of the API.
    @Suite("Citus", .enabled(if: PostgreSQLServer.hasCitus, "the extension citus is not installed"), .serialized)
    struct CitusTests {
        @Test
        func `Tables that are there already are distributed by a migration on request`() async throws {
            let database = try TestDatabase(on: try PostgreSQLServer(["fsync=off"], isCitus: true))
            let store = try PostgreSQLStore.make(in: database)
            try await store.apply(.replace(["e": "v"]), to: "ada")
            store.close()
            try database.execute("SELECT undistribute_table('users', cascade_via_foreign_keys => true)")
            #expect(try PostgreSQLStore.make(in: database).isDistributed == false)
            _ = try PostgreSQLStore.migrate(PostgreSQLConfiguration(url: database.url))
            let distributed = try PostgreSQLStore.make(in: database)
            defer { distributed.close() }
            #expect(distributed.isDistributed)
            let reader = try distributed.makeReader()
            defer { reader.close() }
            #expect(try reader.profile(of: "ada")?.variationID(for: "e") == "v")
        }

        @Test
        func `Users are on both workers, and to lose one fails its users only`() async throws {
            let server = try PostgreSQLServer(["fsync=off"], isCitus: true)
            let database = try TestDatabase(on: server)
            let store = try PostgreSQLStore.make(in: database)
            defer { store.close() }
            let users = (0..<60).map { Identifier("user\($0)") }
            for result in await store.applyTogether(users.map { Self.save("1", for: $0) }) { _ = try result.get() }
            let rows = try database.execute(
                """
                SELECT user_id, nodeport FROM users
                JOIN citus_shards ON shardid = get_shard_id_for_distribution_column('users', user_id)
                """)
            let ports = Dictionary(uniqueKeysWithValues: rows.map { (Identifier($0[0] ?? ""), $0[1]) })
            #expect(Set(ports.values) == ["\(server.port + 1)", "\(server.port + 2)"])
            #expect(ports.count == users.count)

            let lost = try #require(server.processID(of: "worker2"))
            kill(lost, SIGKILL)
            let worker = "postgresql://postgres@127.0.0.1:\(server.port + 2)/postgres"
            while (try? SQLConnection(worker)) != nil { usleep(10_000) }
            let there = Set(users.filter { ports[$0] == "\(server.port + 1)" })
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            for _ in 0..<3 {
                let found = await Self.outcomes(of: users, in: session) { session, user, completion in
                    session.profile(of: user) { completion((try? $0.get()) != nil) }
                }
                #expect(found == there)
                let saved = await Self.outcomes(of: users, in: session) { session, user, completion in
                    session.submit(Self.save("2", for: user), by: nil) { completion((try? $0.get()) != nil) }
                }
                #expect(saved == there)
            }
            #expect(store.writeFailure == nil)
            // A server that starts now serves them, too.
            let late = try PostgreSQLStore.make(in: database)
            defer { late.close() }
            let reader = try late.makeReader()
            defer { reader.close() }
            for user in there.prefix(3) { #expect(try reader.profile(of: user)?.variationID(for: "e") == "2") }
        }

        private static func save(_ variationID: Identifier, for userID: Identifier) -> ProfileChange {
            ProfileChange(userID: userID, operation: .save(["e": variationID], onConflict: .replace))
        }

        /// Asks for all users in one batch.
        ///
        /// - Returns: the users who were answered.
        private static func outcomes(
            of users: [Identifier], in session: BackgroundSession,
            _ ask: @escaping @Sendable (any StoreSession, Identifier, @escaping @Sendable (Bool) -> Void) -> Void
        ) async -> Set<Identifier> {
            let (stream, continuation) = AsyncStream<(Identifier, Bool)>.makeStream()
            session.run { session in
                session.beginBatch()
                for user in users { ask(session, user) { continuation.yield((user, $0)) } }
                session.endBatch()
            }
            var answered: Set<Identifier> = []
            var count = 0
            for await (user, isAnswered) in stream {
                count += 1
                if isAnswered { answered.insert(user) }
                if count == users.count { break }
            }
            return answered
        }
    }
}
