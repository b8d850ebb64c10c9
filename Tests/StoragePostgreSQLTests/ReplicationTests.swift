import Bucketing
import Dispatch
import PostgreSQLTestSupport
import ProcessTestSupport
import Storage
import Synchronization
import TestSupport
import Testing

@testable import StoragePostgreSQL

extension PostgreSQLTests {
    /// A primary and its standbys, with what becomes of connections.
    @Suite("Replication")
    struct ReplicationTests {
        private static func save(_ variationID: Identifier, for userID: Identifier) -> ProfileChange {
            ProfileChange(userID: userID, operation: .save(["e": variationID], onConflict: .replace))
        }

        @Test
        func `While the synchronous standby is away, writes fail, lookups go on, and connections do not pile up`()
            async throws
        {
            let server = try PostgreSQLServer(["fsync=off"])
            let url = server.url("postgres")
            var configuration = PostgreSQLConfiguration(url: url)
            configuration.statementTimeout = 1.5
            configuration.watchInterval = 0.1
            // What maintenance writes would wait, too.
            configuration.settings.retentionInterval = 3_600
            let store = try PostgreSQLStore(configuration)
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            _ = try session.wait { $0.submit(Self.save("1", for: "ada"), $1) }
            let admin = try SQLConnection(url)
            func wait(for standby: String) async throws {
                try admin.execute("ALTER SYSTEM SET synchronous_standby_names = '\(standby)'")
                try admin.execute("SELECT pg_reload_conf()")
                try await eventually { store.configuration.cluster.isSynchronous == !standby.isEmpty }
            }
            try await wait(for: "nobody")
            for round in 0..<20 {
                #expect(throws: StorageError.self) {
                    _ = try session.wait { $0.submit(Self.save("2", for: Identifier("u\(round)")), $1) }
                }
            }
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            #expect(try admin.execute(waiting) == [["1"]])
            #expect(store.metrics().own.first { $0.name == "holdfast_store_parked_connections" }?.value == 1)
            await #expect(throws: StorageError.self) { try await store.probe() }
            #expect(store.writeFailure != nil && store.readFailure == nil)
            try await store.probeReads()
            #expect(try session.wait { $0.profile(of: "ada", $1) }?.variationID(for: "e") == "1")

            // As after a restart: what was refused is there, but not on the standby.
            try admin.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
            try await eventually { store.configuration.cluster.parkedConnections == 0 }
            #expect(try session.wait { $0.profile(of: "u0", $1) }?.variationID(for: "e") == "2")
            let repeated = #expect(throws: StorageError.self) {
                _ = try session.wait { $0.submit(Self.save("2", for: "u0"), $1) }
            }
            guard case .unavailable = repeated else { return #expect(Bool(false), "\(String(describing: repeated))") }
            await #expect(throws: StorageError.self) { try await store.removeSegment("none") }

            try await wait(for: "")
            try await eventually { store.configuration.cluster.parkedConnections == 0 }
            // The server learns of the setting one process after the other.
            try await eventually {
                (try? session.wait { $0.submit(Self.save("2", for: "u0"), $1) })?.changed == false
            }
            try await eventually { (try? session.wait { $0.submit(Self.save("3", for: "u0"), $1) }) != nil }
            try await eventually { try admin.execute(waiting) == [["0"]] }
        }

        @Test
        func `A commit whose wait for the standby is cancelled is not acknowledged, although it succeeds`() async throws
        {
            let server = try PostgreSQLServer(["fsync=off"])
            let admin = try SQLConnection(server.url("postgres"))
            var configuration = PostgreSQLConfiguration(url: server.url("postgres"))
            configuration.statementTimeout = 60
            // What maintenance writes would wait, too.
            configuration.settings.retentionInterval = 3_600
            let store = try PostgreSQLStore(configuration)
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            try admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            try admin.execute("SELECT pg_reload_conf()")
            try await eventually { store.configuration.cluster.isSynchronous }
            let results = AsyncStream<Result<ProfileChangeResult, StorageError>>.makeStream()
            session.run { session in
                session.submit(Self.save("1", for: "ada")) { results.continuation.yield($0) }
            }
            var cancelled: [[String?]] = []
            while cancelled.isEmpty {
                cancelled = try admin.execute(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
            }
            var iterator = results.stream.makeAsyncIterator()
            let result = try #require(await iterator.next())
            let error = #expect(throws: StorageError.self) { _ = try result.get() }
            guard case .unavailable(let reason) = error else {
                return #expect(Bool(false), "\(String(describing: error))")
            }
            #expect(reason.contains("synchronous replication"))
        }

        @Test
        func `Connections that are cut without a word are given up, and others made`() async throws {
            let database = try TestDatabase(.postgreSQL)
            let proxy = try FaultyProxy(to: database.server.port)
            var configuration = PostgreSQLConfiguration(
                url: "postgresql://postgres@127.0.0.1:\(proxy.port)/\(database.name)")
            configuration.statementTimeout = 1
            configuration.watchInterval = 0.2
            let store = try PostgreSQLStore(configuration)
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            _ = try session.wait { $0.submit(Self.save("1", for: "ada"), $1) }
            #expect(try session.wait { $0.profile(of: "ada", $1) }?.variationID(for: "e") == "1")
            proxy.forgetConnections()
            let refused = #expect(throws: StorageError.self) { try session.wait { $0.profile(of: "ada", $1) } }
            guard case .unavailable = refused else { return #expect(Bool(false), "\(String(describing: refused))") }
            #expect(try session.wait { $0.profile(of: "ada", $1) }?.variationID(for: "e") == "1")
            try await eventually {
                (try? session.wait { $0.submit(Self.save("2", for: "ada"), $1) }) != nil
            }
            #expect(try session.wait { $0.profile(of: "ada", $1) }?.variationID(for: "e") == "2")
            #expect(store.metrics().own.contains { $0.name == "holdfast_store_reconnects_total" && $0.value >= 2 })
        }

        @Test
        func `A primary that was left behind is not read any more when it comes back`() async throws {
            let hosts = try PostgreSQLHosts()
            let first = try PostgreSQLServer.freePort(andNext: 1)
            try hosts.run("create", "host0", "\(first)")
            try hosts.run("copy", "\(first)", "host1", "\(first + 1)")
            let names = "127.0.0.1:\(first),127.0.0.1:\(first + 1)"
            var configuration = PostgreSQLConfiguration(
                url: "postgresql://postgres@\(names)/postgres?target_session_attrs=read-write&connect_timeout=2")
            configuration.watchInterval = 0.1
            let store = try PostgreSQLStore(configuration)
            defer { store.close() }
            try await store.apply(.replace(["e": "old"]), to: "ada")
            let reader = try store.makeReader()
            defer { reader.close() }
            #expect(try reader.variations(of: "ada") == ["e": "old"])
            #expect(store.configuration.cluster.newestTimeline == 1)
            let notices = Atomic(0)
            let watch = try #require(store.watchProjects { notices.add(1, ordering: .relaxed) })
            defer { watch.cancel() }
            try await eventually { watch.isActive }

            // Nobody of this process uses its connections meanwhile.
            try hosts.run("pause", "host0")
            try hosts.run("promote", "host1", "\(first + 1)")
            let url = "postgresql://postgres@127.0.0.1:\(first + 1)/postgres"
            let other = try PostgreSQLStore(PostgreSQLConfiguration(url: url))
            try await other.apply(.replace(["e": "new"]), to: "ada")
            other.close()
            try await eventually { store.configuration.cluster.newestTimeline == 2 }
            try hosts.run("resume", "host0")

            #expect(try reader.variations(of: "ada") == ["e": "new"])
            try await store.apply(.save(["f": "new"], onConflict: .replace), to: "ada")
            try await eventually { watch.isActive }
            let before = notices.load(ordering: .relaxed)
            _ = try await store.activate("1")
            try await eventually { notices.load(ordering: .relaxed) > before }
            // The first host accepts writes, but it is not the one to write to.
            var late = configuration
            late.url += "&application_name=late"
            let started = try PostgreSQLStore(PostgreSQLConfiguration(url: late.url))
            defer { started.close() }
            let lateReader = try started.makeReader()
            defer { lateReader.close() }
            #expect(try lateReader.variations(of: "ada") == ["e": "new", "f": "new"])
        }
    }

    @Suite("Locked rows")
    struct LockedRowTests {
        @Test
        func `A row that somebody else has locked holds up the changes of its user only`() async throws {
            let database = try TestDatabase(.postgreSQL)
            let store = try PostgreSQLStore.make(in: database) { $0.statementTimeout = 20 }
            defer { store.close() }
            let users = (0..<8).map { Identifier("u\($0)") }
            for user in users { try await store.apply(.replace(["e": "0"]), to: user) }
            let locker = try SQLConnection(database.server.url(database.name))
            try locker.execute("BEGIN; SELECT FROM users WHERE user_id = 'u3' FOR UPDATE")
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            let (results, continuation) = AsyncStream<(Identifier, StorageError?)>.makeStream()
            for round in 1...2 {
                session.run { session in
                    session.beginBatch()
                    for user in users {
                        let operation = ProfileChange.Operation.save(
                            ["e": Identifier("\(round)")], onConflict: .replace)
                        session.submit(ProfileChange(userID: user, operation: operation)) { result in
                            if case .failure(let error) = result {
                                continuation.yield((user, error))
                            } else {
                                continuation.yield((user, nil))
                            }
                        }
                    }
                    session.endBatch()
                }
            }
            var iterator = results.makeAsyncIterator()
            for _ in 0..<14 {
                let (user, failure) = try #require(await iterator.next())
                #expect(user != "u3" && failure == nil)
            }
            try locker.execute("ROLLBACK")
            for _ in 0..<2 {
                let (user, failure) = try #require(await iterator.next())
                #expect(user == "u3" && failure == nil)
            }
            let reader = try store.makeReader()
            defer { reader.close() }
            for user in users { #expect(try reader.variations(of: user) == ["e": "2"]) }
        }

        @Test(arguments: ["row", "table"])
        func `A row or a table that stays locked fails changes in time`(_ what: String) async throws {
            let database = try TestDatabase(.postgreSQL)
            let store = try PostgreSQLStore.make(in: database) { $0.statementTimeout = 4 }
            defer { store.close() }
            try await store.apply(.replace(["e": "0"]), to: "ada")
            let locker = try SQLConnection(database.server.url(database.name))
            try locker.execute("BEGIN")
            try locker.execute(
                what == "row" ? "SELECT FROM users FOR UPDATE" : "LOCK TABLE users IN EXCLUSIVE MODE")
            let error = await #expect(throws: StorageError.self) {
                try await store.apply(.save(["e": "1"], onConflict: .replace), to: "ada")
            }
            guard case .unavailable = error else { return #expect(Bool(false), "\(String(describing: error))") }
            #expect(store.writeFailure == nil)
            try locker.execute("ROLLBACK")
            try await store.apply(.save(["e": "1"], onConflict: .replace), to: "ada")
        }
    }

    @Suite("Readiness")
    struct ReadinessTests {
        private func outcomes(_ store: PostgreSQLStore) async -> (reads: StorageError?, writes: StorageError?) {
            func failure(_ probe: () async throws(StorageError) -> Void) async -> StorageError? {
                do throws(StorageError) {
                    try await probe()
                    return nil
                } catch {
                    return error
                }
            }
            return (await failure(store.probeReads), await failure(store.probe))
        }

        @Test
        func `Probes find a table that is renamed or locked, and a right that is missing`() async throws {
            let database = try TestDatabase(.postgreSQL)
            try PostgreSQLStore.make(in: database).close()
            let role = "role_\(database.name)"
            try database.execute(
                """
                CREATE ROLE \(role) LOGIN;
                GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO \(role);
                GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO \(role)
                """)
            let url = database.url.replacing("postgres@", with: "\(role)@")
            let store = try PostgreSQLStore(PostgreSQLConfiguration(url: url))
            try database.execute("REVOKE USAGE ON ALL SEQUENCES IN SCHEMA public FROM \(role)")
            var found = await outcomes(store)
            #expect(found.reads == nil)
            #expect(found.writes?.description.contains("USAGE on event_numbers") == true)
            try database.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO \(role)")
            found = await outcomes(store)
            #expect(found.reads == nil && found.writes == nil)
            try database.execute("ALTER TABLE users RENAME TO others")
            found = await outcomes(store)
            #expect(found.reads != nil && found.writes != nil)
            try database.execute("ALTER TABLE others RENAME TO users")
            let locker = try SQLConnection(database.server.url(database.name))
            try locker.execute("BEGIN; LOCK TABLE users")
            found = await outcomes(store)
            #expect(found.reads != nil && found.writes != nil)
            try locker.execute("ROLLBACK")
            found = await outcomes(store)
            #expect(found.reads == nil && found.writes == nil)
            store.close()
            try database.execute("DROP OWNED BY \(role); DROP ROLE \(role)")
        }

        @Test
        func `Lookups that fail are counted, and make the store unready for reads`() async throws {
            let database = try TestDatabase(.postgreSQL)
            let store = try PostgreSQLStore.make(in: database)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try database.execute("ALTER TABLE users RENAME COLUMN profile TO other")
            #expect(throws: StorageError.self) { try reader.profile(of: "ada") }
            #expect(store.readFailure != nil && store.writeFailure == nil)
            #expect(store.metrics().own.first { $0.name == "holdfast_store_failed_lookups_total" }?.value == 1)
            try database.execute("ALTER TABLE users RENAME COLUMN other TO profile")
            #expect(try reader.profile(of: "ada") == nil)
            #expect(store.readFailure == nil)
        }

        @Test
        func `A state that alternates is held until nothing has failed for a while`() {
            var health = Health()
            let (second, error) = (1_000_000_000 as UInt64, StorageError.unavailable(reason: "no"))
            var reports = [health.failed(error, at: 0), health.succeeded(at: 1)].count { $0 }
            #expect(reports == 2 && health.failure == nil)
            reports = 0
            for step in 1..<40 as Range<UInt64> {
                if health.failed(error, at: step * second / 4) { reports += 1 }
                if health.succeeded(at: step * second / 4 + 1) { reports += 1 }
            }
            #expect(reports < 10 && health.failure == error)
            let cause = StorageError.unavailable(reason: "the certificate is not trusted")
            let changes = [(cause, 11), (error, 12), (error, 17), (error, 18)] as [(StorageError, UInt64)]
            #expect(changes.map { health.failed($0, at: $1 * second) } == [true, false, true, false])
            let ends = [health.succeeded(at: 19 * second), health.succeeded(at: 22 * second)]
            #expect(ends == [false, true] && health.failure == nil)
        }

        @Test(
            arguments: [
                ("postgresql://one/name", [""]), ("host=one port=1", [""]), ("service=x", [""]),
                ("postgresql://one:1,two/name", ["host=one port=1", "host=two port=5432"]),
                ("host=one,two port=7", ["host=one port=7", "host=two port=7"]),
                ("host=one,two hostaddr=1.1.1.1,2.2.2.2", ["host=one hostaddr=1.1.1.1", "host=two hostaddr=2.2.2.2"]),
                ("postgresql://one,two/name?target_session_attrs=prefer-standby", [""]),
            ])
        func `Each host of a connection string can be tried alone`(_ string: String, _ expected: [String]) {
            let hosts = ConnectionString(string).hosts.map { host in
                host.settings.map { "\($0)=\($1)" }.joined(separator: " ")
            }
            #expect(hosts == expected)
        }

        @Test
        func `The last good host is tried first, and one that failed since is tried last`() {
            let cluster = Cluster()
            #expect(cluster.order(of: 3) == [0, 1, 2])
            cluster.didConnect(to: 1)
            #expect(cluster.order(of: 3) == [1, 0, 2])
            cluster.didLose(1)
            #expect(cluster.order(of: 3) == [0, 2, 1])
            cluster.didConnect(to: 2)
            #expect(cluster.order(of: 3) == [2, 0, 1] && cluster.order(of: 1) == [0])
        }

        @Test
        func `A host that was found to be the primary is tried before others, and an unreachable one last`() {
            let cluster = Cluster()
            cluster.didConnect(to: 0)
            cluster.didFind(.unreachable, at: 0)
            cluster.didFind(.standby, at: 1)
            cluster.didFind(.primary(nil), at: 2)
            #expect(cluster.order(of: 3) == [2, 1, 0])
            // Since the watch has found it.
            cluster.didLose(2)
            #expect(cluster.order(of: 3) == [1, 2, 0])
            let former = DispatchTime.now().uptimeNanoseconds
            #expect(!cluster.isPrimary(1, since: former))
            cluster.didSee(Cluster.Timeline(systemID: "a", number: 2), isSynchronous: false)
            cluster.didFind(.primary(Cluster.Timeline(systemID: "a", number: 2)), at: 1)
            cluster.didFind(.primary(Cluster.Timeline(systemID: "a", number: 1)), at: 0)
            #expect(cluster.order(of: 3) == [1, 2, 0])
            #expect(cluster.isPrimary(1, since: former) && !cluster.isPrimary(0, since: former))
        }
    }
}
