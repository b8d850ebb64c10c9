import Bucketing
import Foundation
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    /// The database file, its log and the log's index: moving one away from under a store loses no acknowledged write.
    @Suite("Files in place")
    struct FilesInPlaceTests {
        private let directory: TemporaryDirectory
        private var path: String { directory.file("holdfast.db") }

        init() throws {
            directory = try TemporaryDirectory()
        }

        /// Waits for the scan for the user filter. It opens a connection, which would create another log, or in the worst
        /// case truncate the index that the others have mapped.
        private func waitForUserScan(of store: SQLiteStore) async {
            let deadline = ContinuousClock.now + .seconds(60)
            while store.metrics().userFilterBytes == 0, .now < deadline { await Task.yield() }
        }

        private func expectRefusal(
            of store: SQLiteStore, because reason: String, sourceLocation: SourceLocation = #_sourceLocation
        ) async throws {
            await #expect(sourceLocation: sourceLocation) {
                try await store.apply(.replace(["e": "refused"]), to: "refused")
            } throws: { error in
                "\(error)".contains("the \(reason) must stay in place")
                    && "\(error)".contains("moved, deleted or replaced")
            }
            await #expect(throws: StorageError.self, sourceLocation: sourceLocation) { try await store.probe() }
            #expect("\(store.writeFailure, default: "")".contains(reason), sourceLocation: sourceLocation)
        }

        @Test(
            arguments: [
                ("", "database file"), ("-wal", "write-ahead log"), ("-shm", "index of the write-ahead log"),
            ], [true, false])
        func `A store whose file was moved away or replaced refuses writes until it is back`(
            file: (suffix: String, name: String), isReplaced: Bool
        ) async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            #expect(try reader.variations(of: "user") == ["e": "v"])
            await waitForUserScan(of: store)
            try FileManager.default.moveItem(atPath: path + file.suffix, toPath: path + ".away")
            if isReplaced { #expect(FileManager.default.createFile(atPath: path + file.suffix, contents: nil)) }
            try await expectRefusal(of: store, because: file.name)
            #expect(try reader.variations(of: "user") == ["e": "v"])
            #expect(rename(path + ".away", path + file.suffix) == 0)
            try await store.apply(.replace(["e": "w"]), to: "user")
            #expect(try reader.variations(of: "user") == ["e": "w"])
            #expect(try reader.variations(of: "refused") == nil)
        }

        @Test
        func `The next write copies all acknowledged writes of a deleted log into the database`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            for result in await store.applyAsOne(.newUsers(200)) { _ = try result.get() }
            await waitForUserScan(of: store)
            #expect(unlink(path + "-wal") == 0)
            try await expectRefusal(of: store, because: "write-ahead log")
            // The database as a process would leave it if it were killed now.
            let copy = try TemporaryDirectory()
            try FileManager.default.copyItem(atPath: path, toPath: copy.file("holdfast.db"))
            let recovered = try SQLiteStore.make(in: copy)
            defer { recovered.close() }
            let reader = try recovered.makeReader()
            defer { reader.close() }
            #expect(try reader.page(after: nil, limit: 1_000).count == 200)
            #expect(try RawDatabase(copy.file("holdfast.db")).value("PRAGMA integrity_check") == "ok")
        }

        @Test
        func `Open connections read from a deleted log, until another process creates a new one`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            await waitForUserScan(of: store)
            #expect(try store.exposures(after: 0, limit: 10).isEmpty)
            // Makes the reader ask the database.
            try RawDatabase(path).execute("UPDATE profiles SET user_id = 'renamed'")
            #expect(unlink(path + "-wal") == 0)
            #expect(try reader.variations(of: "renamed") == ["e": "v"])
            #expect(try store.exposures(after: 0, limit: 10).isEmpty)
            try await expectRefusal(of: store, because: "write-ahead log")

            let restarted = try SQLiteStore.make(in: directory)
            defer { restarted.close() }
            try await restarted.apply(.replace(["e": "w"]), to: "renamed")
            #expect(throws: StorageError.self) { try reader.variations(of: "renamed") }
            #expect(throws: StorageError.self) { try store.exposures(after: 0, limit: 10) }
            let other = try restarted.makeReader()
            defer { other.close() }
            #expect(try other.variations(of: "renamed") == ["e": "w"])
        }

        @Test
        func `A log that is deleted during a commit is detected before the commit is acknowledged`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            await waitForUserScan(of: store)
            let path = path
            let result = await withCheckedContinuation { continuation in
                store.writer.submit(
                    { transaction in
                        unlink(path + "-wal")
                        transaction.changed()
                    }, completion: { continuation.resume(returning: $0) })
            }
            #expect(throws: StorageError.self) { try result.get() }
        }

        @Test
        func `Closing the store copies a log whose file was deleted`() async throws {
            let store = try SQLiteStore.make(in: directory)
            try await store.apply(.replace(["e": "v"]), to: "user")
            await waitForUserScan(of: store)
            #expect(unlink(path + "-wal") == 0)
            store.close()
            let reopened = try SQLiteStore.make(in: directory)
            defer { reopened.close() }
            let reader = try reopened.makeReader()
            defer { reader.close() }
            #expect(try reader.variations(of: "user") == ["e": "v"])
        }

        @Test
        func `Connections that are opened later do not use another log than the open one`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            await waitForUserScan(of: store)
            #expect(rename(path + "-wal", path + ".away") == 0)
            #expect(throws: StorageError.self) { try store.makeReader() }
            #expect(throws: StorageError.self) { try store.exposures(after: 0, limit: 10) }
            #expect(rename(path + ".away", path + "-wal") == 0)
            let reader = try store.makeReader()
            defer { reader.close() }
            #expect(try reader.variations(of: "user") == ["e": "v"])
        }

        @Test
        func `Only its owner may read a new database, its log, and a backup of it`() async throws {
            func modes() throws -> [String: Int] {
                let names = try FileManager.default.contentsOfDirectory(atPath: directory.path)
                return try Dictionary(
                    uniqueKeysWithValues: names.map { name in
                        let attributes = try FileManager.default.attributesOfItem(atPath: directory.file(name))
                        return (name, (attributes[.posixPermissions] as? NSNumber)?.intValue ?? 0)
                    })
            }
            let store = try SQLiteStore.make(in: directory)
            try await store.apply(.replace(["e": "v"]), to: "user")
            #expect(try modes() == ["holdfast.db": 0o600, "holdfast.db-wal": 0o600, "holdfast.db-shm": 0o600])
            store.close()
            // Permissions that an operator has changed stay, and do not apply to copies.
            #expect(chmod(path, 0o640) == 0)
            try SQLiteStore.make(in: directory).close()
            try DatabaseMaintenance.backUp(path: path, to: directory.file("copy.db"))
            #expect(try modes() == ["holdfast.db": 0o640, "copy.db": 0o600])
        }
    }
}
