import Bucketing
import Foundation
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    /// A write-ahead log beside a database that it was not written for.
    @Suite("Left log")
    struct LeftLogTests {
        private let directory: TemporaryDirectory
        private var path: String { directory.file("holdfast.db") }

        init() throws {
            directory = try TemporaryDirectory()
        }

        private func save(_ users: Range<Int>, in store: SQLiteStore) async throws {
            for user in users { try await store.apply(.replace(["e": "v"]), to: Identifier("user\(user)")) }
        }

        private func write(_ contents: [String: Data]) throws {
            for (name, content) in contents { try content.write(to: URL(fileURLWithPath: directory.file(name))) }
        }

        /// Removes the database, and writes files in its place.
        private func replace(by contents: [String: Data]) throws {
            for suffix in ["", "-wal", "-shm"] { unlink(path + suffix) }
            try write(contents)
        }

        /// What a crash leaves: commits are in the log.
        private func crashed() async throws -> [String: Data] {
            let store = try SQLiteStore.make(in: directory)
            try await save(0..<20, in: store)
            let contents = try directory.contents().filter { !$0.key.hasSuffix("-shm") }
            store.close()
            #expect((contents["holdfast.db-wal"]?.count ?? 0) > 1_024)
            return contents
        }

        private func expectRefusal(_ reason: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
            func contents() throws -> [String: Data] {
                // The index of a log is made anew; it is not data.
                try directory.contents().filter { !$0.key.hasSuffix("-shm") }
            }
            let before = try contents()
            for _ in 0..<2 {
                let error = #expect(throws: DatabaseError.self, sourceLocation: sourceLocation) {
                    try SQLiteStore.make(in: directory)
                }
                let text = error?.description ?? ""
                #expect(text.contains("the write-ahead log \(path)-wal must belong"), sourceLocation: sourceLocation)
                #expect(text.contains(reason), "\(text)", sourceLocation: sourceLocation)
                #expect(text.contains("holdfast restore"), sourceLocation: sourceLocation)
                #expect(error?.isPermanent == true, sourceLocation: sourceLocation)
            }
            #expect(try contents() == before, sourceLocation: sourceLocation)
        }

        @Test
        func `The log of a crash belongs to its file`() async throws {
            try replace(by: try await crashed())
            let store = try SQLiteStore.make(in: directory)
            #expect(store.metrics().profiles == 20)
            store.close()
        }

        @Test(arguments: [true, false])
        func `A log that was copied in part, and began anew, belongs to its file`(isComplete: Bool) async throws {
            let store = try SQLiteStore.make(in: directory)
            try await save(0..<20, in: store)
            let other = try RawDatabase(path)
            try other.execute("PRAGMA wal_checkpoint(\(isComplete ? "RESTART" : "PASSIVE"))")
            try await save(20..<25, in: store)
            let contents = try directory.contents().filter { !$0.key.hasSuffix("-shm") }
            store.close()
            withExtendedLifetime(other) {}
            try replace(by: contents)
            let again = try SQLiteStore.make(in: directory)
            #expect(again.metrics().profiles == 25)
            again.close()
        }

        @Test
        func `A backup beside the log of the database that it replaced is refused and unchanged`() async throws {
            let contents = try await crashed()
            try DatabaseMaintenance.backUp(path: path, to: directory.file("copy"))
            let copy = try Data(contentsOf: URL(fileURLWithPath: directory.file("copy")))
            try replace(by: contents)
            try write(["holdfast.db": copy])
            try expectRefusal("without a log, as backups are")
        }

        @Test(arguments: [true, false])
        func `An older or newer file beside the log of another time is refused and unchanged`(isOlder: Bool)
            async throws
        {
            func closedFile(after users: Range<Int>) async throws -> Data {
                let store = try SQLiteStore.make(in: directory)
                try await save(users, in: store)
                store.close()
                return try Data(contentsOf: URL(fileURLWithPath: path))
            }
            let older = try await closedFile(after: 30..<40)
            _ = try await closedFile(after: 40..<50)
            let contents = try await crashed()
            let newer = try await closedFile(after: 60..<70)
            try replace(by: contents)
            try write(["holdfast.db": isOlder ? older : newer])
            try expectRefusal("the file ends with commit")
        }

        @Test(arguments: [true, false])
        func `A log without its database is not deleted`(isEmpty: Bool) async throws {
            try replace(by: try await crashed())
            unlink(path)
            if isEmpty { try write(["holdfast.db": Data()]) }
            try expectRefusal("the database is missing or empty")
        }

        @Test
        func `A restore checks the backup, and keeps the former files aside`() async throws {
            let contents = try await crashed()
            let copy = directory.file("copy")
            try DatabaseMaintenance.backUp(path: path, to: copy)
            let store = try SQLiteStore.make(in: directory)
            try await save(20..<30, in: store)
            store.close()
            // A file that was replaced beside its log is mended, too.
            try write(["holdfast.db-wal": contents["holdfast.db-wal"] ?? Data()])
            let former = try directory.contents()
            let restored = try DatabaseMaintenance.restore(copy, to: path, date: "20261123T120000Z")
            #expect(restored.profiles == 20 && restored.assignments == 20)
            #expect(restored.version == Int(DatabaseFile.version))
            #expect(restored.former == path + ".20261123T120000Z")
            let after = try directory.contents()
            #expect(after["holdfast.db.20261123T120000Z"] == former["holdfast.db"])
            #expect(after["holdfast.db.20261123T120000Z-wal"] == former["holdfast.db-wal"])
            #expect(after["holdfast.db-wal"] == nil && after["holdfast.db.partial"] == nil)
            let again = try SQLiteStore.make(in: directory)
            #expect(again.metrics().profiles == 20)
            again.close()
            #expect(throws: DatabaseError.self) {
                try DatabaseMaintenance.restore(copy, to: path, date: "20261123T120000Z")
            }
        }

        @Test
        func `A damaged backup, one of another program, and the database itself are not restored`() async throws {
            let store = try SQLiteStore.make(in: directory)
            try await save(0..<500, in: store)
            store.close()
            let copy = directory.file("copy")
            try DatabaseMaintenance.backUp(path: path, to: copy)
            var damaged = try Data(contentsOf: URL(fileURLWithPath: copy))
            for index in 20_480..<21_504 { damaged[index] = 0xA5 }
            try write(["damaged": damaged, "empty": Data(), "text": Data("no database, but long enough".utf8)])
            try RawDatabase(directory.file("foreign")).execute("CREATE TABLE t (a)")
            let before = try directory.contents()
            for (name, reason) in [
                ("damaged", "undamaged"), ("empty", "must not be empty"), ("text", "SQLite database"),
                ("foreign", "another program"), ("none", "must exist"), ("holdfast.db", "another file"),
            ] {
                let error = #expect(throws: DatabaseError.self) {
                    try DatabaseMaintenance.restore(directory.file(name), to: path, date: "d")
                }
                #expect(error?.description.contains(reason) == true, "\(name): \(error?.description ?? "")")
            }
            #expect(try directory.contents() == before)
        }
    }
}
