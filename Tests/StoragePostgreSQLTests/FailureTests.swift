import Bucketing
import Dispatch
import Glibc
import PostgreSQLTestSupport
import Storage
import TestSupport
import Testing

@testable import StoragePostgreSQL

extension PostgreSQLTests {
    @Suite("Failures")
    struct FailureTests {
        @Test
        func `Connections that are lost are made again, and what was acknowledged is there`() async throws {
            let database = try TestDatabase()
            let store = try PostgreSQLStore.make(in: database)
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            var acknowledged = 0
            for round in 0..<30 {
                if round % 5 == 4 {
                    try database.execute(
                        """
                        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                        WHERE datname = current_database() AND pid <> pg_backend_pid()
                        """)
                }
                let change = ProfileChange(
                    userID: "user", operation: .save([Identifier("e\(round)"): "v"], onConflict: .replace))
                do throws(StorageError) {
                    _ = try session.wait { $0.submit(change, $1) }
                    acknowledged += 1
                    let read = try session.wait { $0.profile(of: "user", $1) }
                    #expect(read?.variationID(for: Identifier("e\(round)")) == "v")
                } catch {
                    guard case .unavailable = error else { return #expect(Bool(false), "\(error)") }
                }
            }
            #expect(acknowledged >= 18)
        }

        @Test
        func `A server that cannot be reached is an error, and not the absence of a profile`() async throws {
            let server = try PostgreSQLServer(["fsync=off"])
            let store = try PostgreSQLStore(PostgreSQLConfiguration(url: server.url("postgres")))
            defer { store.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            let reader = try store.makeReader()
            defer { reader.close() }
            #expect(try reader.profile(of: "user") != nil)
            server.stop()
            for _ in 0..<3 {
                let error = #expect(throws: StorageError.self) { _ = try reader.profile(of: "user") }
                guard case .unavailable = error else { return #expect(Bool(false), "\(String(describing: error))") }
            }
            await #expect(throws: StorageError.self) { try await store.apply(.replace(["e": "w"]), to: "user") }
            await #expect(throws: StorageError.self) { try await store.probe() }
            #expect(store.writeFailure != nil)
        }

        @Test
        func `A server that says nothing is given up after the time-out`() async throws {
            let database = try TestDatabase()
            var configuration = PostgreSQLConfiguration(url: database.url)
            configuration.statementTimeout = 0.5
            let store = try PostgreSQLStore(configuration)
            defer { store.close() }
            let locker = try SQLConnection(database.url)
            try locker.execute("BEGIN; LOCK TABLE users")
            let reader = try store.makeReader()
            defer { reader.close() }
            #expect(throws: StorageError.self) { _ = try reader.profile(of: "user") }
            try locker.execute("ROLLBACK")
            #expect(try reader.profile(of: "user") == nil)
        }

        @Test
        func `One change that the database refuses does not fail those submitted with it`() async throws {
            let database = try TestDatabase()
            let store = try PostgreSQLStore.make(in: database)
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            // A text of PostgreSQL has no NUL.
            let users: [Identifier] = ["a", "b\u{0}", "c"]
            let results = await withTaskGroup(of: (Int, Bool).self) { group in
                let streams = users.map { _ in AsyncStream<Bool>.makeStream() }
                session.run { session in
                    session.beginBatch()
                    for (user, stream) in zip(users, streams) {
                        let events = [ReceivedEvent(StoreContract.exposure(user), receivedAt: .max)]
                        session.record(events) { result in
                            stream.continuation.yield((try? result.get()) != nil)
                            stream.continuation.finish()
                        }
                    }
                    session.endBatch()
                }
                for (index, stream) in streams.enumerated() {
                    group.addTask {
                        for await result in stream.stream { return (index, result) }
                        return (index, false)
                    }
                }
                return await group.reduce(into: [Int: Bool]()) { $0[$1.0] = $1.1 }
            }
            #expect(results == [0: true, 1: false, 2: true])
            #expect(try store.exposures(after: 0, limit: 9).map(\.exposure.userID) == ["a", "c"])
        }

        @Test
        func `A damaged record is an error for its user alone, and can be erased`() async throws {
            let database = try TestDatabase()
            let store = try PostgreSQLStore.make(in: database)
            defer { store.close() }
            for user: Identifier in ["good", "bad"] { try await store.apply(.replace(["e": "v"]), to: user) }
            try database.execute("UPDATE users SET profile = '\\x01ff' WHERE user_id = 'bad'")
            let reader = try store.makeReader()
            defer { reader.close() }
            #expect(try reader.profile(of: "good") != nil)
            let error = #expect(throws: StorageError.self) { _ = try reader.profile(of: "bad") }
            #expect(error?.concernsOneUser == true)
            await #expect(throws: StorageError.self) { try await store.apply(.replace(["e": "w"]), to: "bad") }
            try await store.apply(.erase, to: "bad")
            #expect(try reader.profile(of: "bad") == nil)
        }

        @Test
        func `Neither an error nor a log line has the password of the connection string`() {
            for url in [
                "postgresql://ada:secret@127.0.0.1:1/name", "postgresql://ada:secret@127.0.0.1:x/name",
                "postgresql://ada:secret@[::1/name", "postgresql://ada@127.0.0.1:1/name?password=secret&unknown",
            ] {
                let error = #expect(throws: DatabaseError.self) {
                    _ = try PostgreSQLStore(PostgreSQLConfiguration(url: url))
                }
                #expect(error?.description.contains("secret") == false)
            }
            #expect(
                ConnectionString("postgresql://ada:secret@one:1,two:2/name").withoutSecrets
                    == "postgresql://one:1,two:2/name")
        }
    }

    @Suite("Parts")
    struct PartTests {
        @Test
        func `A lost connection is made again at once, then after pauses that grow to a limit`() {
            var schedule = ReconnectSchedule()
            #expect(schedule.mayConnect(at: 0))
            var pauses: [UInt64] = []
            for _ in 0..<8 {
                schedule.failed(PostgreSQLError(connection: "no"), at: 0, jitter: 1)
                #expect(!schedule.mayConnect(at: schedule.earliest - 1) && schedule.mayConnect(at: schedule.earliest))
                pauses.append(schedule.earliest / 1_000_000)
            }
            #expect(pauses == [50, 100, 200, 400, 800, 1_000, 1_000, 1_000])
            schedule.succeeded()
            #expect(schedule.mayConnect(at: 0))
        }

        @Test
        func `What waits is sent once a batch after responses brings nothing more, or after some batches`() {
            var gathering = BatchCoalescer()
            func decisions(_ waiting: [Int]) -> [Bool] { waiting.map { gathering.shouldWait(waiting: $0) } }
            #expect(decisions([1]) == [false])
            gathering.begin()
            #expect(decisions([1, 3, 3, 4]) == [true, true, false, false])
            gathering.begin()
            #expect(decisions([5, 6, 7, 8, 9]) == [true, true, true, true, false])
        }

        @Test(
            arguments: [
                ("40001", PostgreSQLError.Remedy.retry), ("40P01", .retry), ("22012", .applyAgain),
                ("57P01", .reconnect), ("25006", .reconnect), ("08006", .reconnect), ("", .reconnect),
                ("53100", .none), ("42P01", .none),
            ])
        func `Errors have their remedy`(_ state: String, _ remedy: PostgreSQLError.Remedy) {
            #expect(PostgreSQLError(state: state, message: "").remedy == remedy)
        }

        @Test
        func `Arrays are encoded as array_recv reads them`() {
            #expect(
                Parameter(.texts(["a", nil])).bytes == [
                    0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 25, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 97, 255, 255, 255, 255,
                ])
            #expect(Parameter(.integers([])).bytes == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20])
        }
    }
}
