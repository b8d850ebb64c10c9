import Bucketing
import Foundation
import Migrations
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Opening")
    struct OpeningTests {
        let directory: TemporaryDirectory
        var path: String { directory.file("holdfast.db") }

        init() throws {
            directory = try TemporaryDirectory()
        }

        /// Marks a file as a Holdfast database of the first release.
        private let asVersionOne =
            "PRAGMA application_id = \(0x4864_4674); PRAGMA user_version = 1; PRAGMA journal_mode = WAL"

        /// A Holdfast database, closed.
        private func makeDatabase() async throws {
            let store = try SQLiteStore.make(in: directory)
            try await store.apply(.replace(["e": "v"]), to: "user")
            store.close()
        }

        private func expectRefused(sourceLocation: SourceLocation = #_sourceLocation) throws -> String {
            let before = try directory.contents()
            let error = #expect(throws: DatabaseError.self, sourceLocation: sourceLocation) {
                try SQLiteStore.make(in: directory)
            }
            #expect(try directory.contents() == before, sourceLocation: sourceLocation)
            return error?.description ?? ""
        }

        @Test(
            arguments: [
                Data("user_id,variation\n1,2\n".utf8), Data("x".utf8), Data(repeating: 0, count: 8_192),
                Data("SQLite format 3\0".utf8), Data("SQLite format 3\0".utf8) + Data(repeating: 0xFF, count: 8_192),
            ])
        func `Text, noise and a truncated header are refused and unchanged`(content: Data) throws {
            try content.write(to: URL(fileURLWithPath: path))
            #expect(try expectRefused() != "")
        }

        @Test(arguments: ["DELETE", "WAL"])
        func `A database of another program is refused and unchanged`(journalMode: String) throws {
            let foreign = try RawDatabase(path)
            try foreign.execute("PRAGMA journal_mode = \(journalMode); CREATE TABLE t (a); INSERT INTO t VALUES (1)")
            // While it is open, its write-ahead log has all of its contents; the copy is what a crash would leave.
            let other = try TemporaryDirectory()
            for (name, content) in try directory.contents() where !name.hasSuffix("-shm") {
                try content.write(to: URL(fileURLWithPath: other.file(name)))
            }
            let before = try other.contents()
            let error = #expect(throws: DatabaseError.self) { try SQLiteStore.make(in: other) }
            #expect(error?.description.contains("another program") == true)
            // An index of the log may appear; it is not data.
            #expect(try other.contents().filter { !$0.key.hasSuffix("-shm") } == before)
            withExtendedLifetime(foreign) {}
        }

        @Test
        func `A newer database is refused and unchanged`() async throws {
            try await makeDatabase()
            try RawDatabase(path).execute("PRAGMA user_version = 999")
            #expect(try expectRefused().contains("newer"))
        }

        @Test
        func `A version that no release ever wrote is refused`() async throws {
            try await makeDatabase()
            try RawDatabase(path).execute("PRAGMA user_version = -1")
            _ = try expectRefused()
        }

        @Test
        func `A file whose pages are damaged is refused and unchanged`() async throws {
            try await makeDatabase()
            var content = try Data(contentsOf: URL(fileURLWithPath: path))
            for index in 100..<content.count { content[index] = 0xA5 }
            try content.write(to: URL(fileURLWithPath: path))
            #expect(try expectRefused().contains("damaged"))
        }

        @Test
        func `The error names a missing directory`() throws {
            let error = #expect(throws: DatabaseError.self) {
                try SQLiteStore(SQLiteConfiguration(path: directory.file("none/holdfast.db")))
            }
            #expect(error?.description.contains(directory.file("none")) == true)
        }

        @Test
        func `A directory in place of the file is refused`() throws {
            #expect(throws: DatabaseError.self) { try SQLiteStore(SQLiteConfiguration(path: directory.path)) }
        }

        @Test
        func `An empty file counts as a missing one`() async throws {
            try Data().write(to: URL(fileURLWithPath: path))
            try await makeDatabase()
        }

        @Test
        func `Stored data is there when the store is opened again`() async throws {
            try await makeDatabase()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            #expect(try reader.variations(of: "user") == ["e": "v"])
            #expect(store.metrics().profiles == 1)
            #expect(store.metrics().assignments == 1)
        }

        @Test
        func `A database of version 1 is migrated with its profiles`() async throws {
            let record = ProfileRecord([
                "e": Assignment(variationID: "v", source: .saved, assignedAt: 1, updatedAt: 1, expiresAt: nil)
            ])
            let hex = record.bytes.map { String(format: "%02x", $0) }.joined()
            let first = try #require(Migrations.sqlite.first)
            do {
                let old = try RawDatabase(path)
                try old.execute(String(decoding: first, as: UTF8.self))
                try old.execute(asVersionOne)
                try old.execute("INSERT INTO profiles VALUES ('user', x'\(hex)', NULL)")
                try old.execute("UPDATE counters SET commits = 7, profiles = 1, assignments = 1")
            }
            let versions = try DatabaseMaintenance.migrate(path: path)
            #expect(versions.from == 1 && versions.to == Migrations.sqlite.count)
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            #expect(try reader.profile(of: "user") == record)
            #expect(store.metrics().profiles == 1)
            #expect(try store.projectChanges() == 0)
        }

        @Test
        func `A migration that fails leaves the database at its former version`() throws {
            let first = try #require(Migrations.sqlite.first)
            do {
                let old = try RawDatabase(path)
                try old.execute(String(decoding: first, as: UTF8.self))
                // What the second step creates exists already.
                try old.execute("CREATE TABLE events (a)")
                try old.execute(asVersionOne)
            }
            #expect(throws: DatabaseError.self) { try SQLiteStore.make(in: directory) }
            let database = try RawDatabase(path)
            #expect(try database.value("PRAGMA user_version") == "1")
            #expect(try database.value("SELECT count(*) FROM sqlite_schema WHERE name = 'datafiles'") == "0")
        }

        @Test
        func `Many stores may create one database at once`() async throws {
            let directory = directory
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<8 {
                    group.addTask {
                        let store = try SQLiteStore.make(in: directory) { $0.lockTimeout = 10 }
                        try await store.apply(.replace(["e": "v"]), to: Identifier("user\(number)"))
                        store.close()
                    }
                }
                try await group.waitForAll()
            }
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            #expect(store.metrics().profiles == 8)
        }
    }
}
