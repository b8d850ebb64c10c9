import Bucketing
import Foundation
import PostgreSQLTestSupport
import ProcessTestSupport
import Storage
import TestSupport
import Testing

@testable import StoragePostgreSQL

extension PostgreSQLTests {
    /// What becomes of connections in each order in which a database and the way to it fail and come back. Statements may
    /// take a minute here, so that a connection that waits for its time-out shows.
    @Suite("Recovery")
    struct RecoveryTests {
        /// What it may take until a healthy primary that can be reached is used: 5 seconds. The suite grants more, for a busy
        /// machine; `HOLDFAST_RECOVERY_SECONDS=5` tests the bound itself.
        private static let bound = Duration.seconds(
            ProcessInfo.processInfo.environment["HOLDFAST_RECOVERY_SECONDS"].flatMap { Int($0) } ?? 20)

        enum Work: CaseIterable, Sendable {
            case lookup, list, probe, save

            func run(_ store: PostgreSQLStore, _ session: BackgroundSession) async -> StorageError? {
                do throws(StorageError) {
                    switch self {
                    case .lookup:
                        try await session.run { session throws(StorageError) in
                            _ = try await completed { session.profile(of: "ada", $0) }
                        }
                    case .list:
                        // A transaction, although it has nothing to commit.
                        try await session.run { session throws(StorageError) in
                            _ = try await completed {
                                session.read(.projects(ifChangedSince: -1, datafilesAfter: 0), $0)
                            }
                        }
                    case .probe: try await store.probe()
                    case .save:
                        try await session.run { session throws(StorageError) in
                            let save = ProfileChange(
                                userID: "ada", operation: .save(["e": "1"], onConflict: .replace))
                            _ = try await completed { session.submit(save, $0) }
                        }
                    }
                    return nil
                } catch {
                    return error
                }
            }
        }

        private static func make(_ url: String) throws -> PostgreSQLStore {
            var configuration = PostgreSQLConfiguration(url: url)
            configuration.statementTimeout = 60
            // Maintenance uses no connections meanwhile.
            configuration.settings.retentionInterval = 3_600
            return try PostgreSQLStore(configuration)
        }

        private static func url(_ port: UInt16, _ name: String, _ options: String = "") -> String {
            "postgresql://postgres@127.0.0.1:\(port)/\(name)\(options)"
        }

        /// Repeats each piece of work until it succeeds, all at once, and expects that to be in time.
        private static func expectAll(_ store: PostgreSQLStore, since start: ContinuousClock.Instant) async throws {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for work in Work.allCases {
                    group.addTask {
                        let session = try BackgroundSession(store, label: "\(work)")
                        defer { session.close() }
                        while let error = await work.run(store, session) {
                            guard ContinuousClock.now - start < bound else {
                                throw StorageError.unavailable(reason: "\(work): \(error)")
                            }
                        }
                        let elapsed = ContinuousClock.now - start
                        #expect(elapsed < bound, "\(work) took \(elapsed)")
                    }
                }
                try await group.waitForAll()
            }
        }

        @Test(arguments: Work.allCases)
        func `Work on a connection that is cut without a word fails in time, and the next succeeds`(
            _ work: Work
        ) async throws {
            let database = try TestDatabase(.postgreSQL)
            let proxy = try FaultyProxy(to: database.server.port)
            let store = try Self.make(Self.url(proxy.port, database.name))
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            #expect(await work.run(store, session) == nil)
            proxy.forgetConnections()
            let start = ContinuousClock.now
            let error = await work.run(store, session)
            let elapsed = ContinuousClock.now - start
            #expect(elapsed < Self.bound, "\(elapsed)")
            guard case .unavailable = error else { return #expect(Bool(false), "\(String(describing: error))") }
            try await Self.expectAll(store, since: start)
        }

        @Test(arguments: ["", "?connect_timeout=0"])
        func `A server that accepts connections and says nothing is given up, and asked again when it talks`(
            _ options: String
        ) async throws {
            let database = try TestDatabase(.postgreSQL)
            let proxy = try FaultyProxy(to: database.server.port)
            let store = try Self.make(Self.url(proxy.port, database.name, options))
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            #expect(await Work.lookup.run(store, session) == nil)
            proxy.fault = .refuses
            #expect(await Work.lookup.run(store, session) != nil)
            try await eventually { proxy.connections == 0 }
            proxy.fault = .swallows
            async let silent = Work.lookup.run(store, session)
            // That of the watch; the lookup's, unless it fails at once because others have failed just before.
            try await eventually { proxy.connections >= 1 }
            proxy.fault = .none
            let start = ContinuousClock.now
            try await Self.expectAll(store, since: start)
            _ = await silent
            #expect(ContinuousClock.now - start < Self.bound)
            // The end of the silent one may fail lookups for a moment.
            try await Self.expectAll(store, since: .now)
        }

        @Test
        func `Lookups count as working again when a probe reads, though nobody looks anything up`() async throws {
            let database = try TestDatabase(.postgreSQL)
            let proxy = try FaultyProxy(to: database.server.port)
            let store = try Self.make(Self.url(proxy.port, database.name))
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            #expect(await Work.lookup.run(store, session) == nil)
            proxy.fault = .refuses
            let start = ContinuousClock.now
            while ContinuousClock.now - start < .seconds(2) {
                #expect(await Work.lookup.run(store, session) != nil)
            }
            #expect(store.readFailure != nil)
            proxy.fault = .none
            let healed = ContinuousClock.now
            while await Work.probe.run(store, session) != nil || store.readFailure != nil {
                guard ContinuousClock.now - healed < Self.bound else { throw StorageError.overloaded }
            }
        }

        @Test(arguments: Work.allCases)
        func `Work on a primary that stands still fails once another one is promoted, and the next succeeds`(
            _ work: Work
        ) async throws {
            let hosts = try PostgreSQLHosts()
            let first = try PostgreSQLServer.freePort(andNext: 1)
            try hosts.run("create", "host0", "\(first)")
            try hosts.run("copy", "\(first)", "host1", "\(first + 1)")
            let names = "127.0.0.1:\(first),127.0.0.1:\(first + 1)"
            let store = try Self.make("postgresql://postgres@\(names)/postgres?target_session_attrs=read-write")
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            #expect(await work.run(store, session) == nil)
            try hosts.run("pause", "host0")
            async let hanging = work.run(store, session)
            try hosts.run("promote", "host1", "\(first + 1)")
            let start = ContinuousClock.now
            try await Self.expectAll(store, since: start)
            _ = await hanging
            #expect(ContinuousClock.now - start < Self.bound)
            #expect(await work.run(store, session) == nil)
        }

        @Test
        func `A standby at the primary's address is used for writes as soon as it is promoted`() async throws {
            let hosts = try PostgreSQLHosts()
            let first = try PostgreSQLServer.freePort(andNext: 1)
            try hosts.run("create", "host0", "\(first)")
            try hosts.run("copy", "\(first)", "host1", "\(first + 1)")
            let proxy = try FaultyProxy(to: first)
            let store = try Self.make(Self.url(proxy.port, "postgres"))
            defer { store.close() }
            let session = try BackgroundSession(store, label: "test")
            defer { session.close() }
            #expect(await Work.save.run(store, session) == nil)
            // Its connections are not told.
            proxy.forgetConnections()
            proxy.lead(to: first + 1)
            try hosts.run("kill", "host0")
            while await Work.lookup.run(store, session) != nil {}
            #expect(await Work.save.run(store, session) != nil)
            try hosts.run("promote", "host1", "\(first + 1)")
            try await Self.expectAll(store, since: .now)
        }
    }
}
