import Bucketing
import Foundation
import Storage
import Synchronization
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Failures")
    struct FailureTests {
        let directory: TemporaryDirectory
        var path: String { directory.file("holdfast.db") }

        init() throws {
            directory = try TemporaryDirectory()
        }

        /// - Returns: why a write failed; empty if it succeeded.
        private func reasonOfFailure(_ store: SQLiteStore, _ userID: Identifier = "user") async -> String {
            do {
                try await store.apply(.replace(["e": Identifier(UUID().uuidString)]), to: userID)
                return ""
            } catch StorageError.unavailable(let reason) {
                return reason
            } catch {
                return "\(error)"
            }
        }

        @Test
        func `While another process locks the database, writes fail and reads succeed; then both succeed`() async throws
        {
            let store = try SQLiteStore.make(in: directory) { $0.lockTimeout = 0.05 }
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            let other = try RawDatabase(path)
            try other.execute("BEGIN IMMEDIATE")
            #expect(await reasonOfFailure(store).contains("locked"))
            let asOne = await store.applyAsOne(.newUsers(3))
            #expect(asOne.map { (try? $0.get()) == nil } == [true, true, true])
            await #expect(throws: StorageError.self) { try await store.probe() }
            #expect(try reader.variations(of: "user") == ["e": "v"])
            try other.execute("ROLLBACK")
            try await store.probe()
            #expect(await reasonOfFailure(store) == "")
            #expect(store.metrics().failedChanges == 5)
        }

        @Test
        func `When a write times out on a lock, the writes that wait behind it fail with it`() async throws {
            let store = try SQLiteStore.make(in: directory) {
                $0.lockTimeout = 0.5
                $0.batchLimit = 1
            }
            defer { store.close() }
            let other = try RawDatabase(path)
            try other.execute("BEGIN IMMEDIATE")
            // One after the other they would take 20 seconds. What counts is when they complete, not when this task resumes,
            // which may wait for a thread.
            let start = ContinuousClock.now
            let told = Told()
            let session = try BackgroundSession(store, label: "test")
            await withCheckedContinuation { continuation in
                session.run { session in
                    for number in 0..<40 {
                        let change = ProfileChange(userID: Identifier("u\(number)"), operation: .replace([:]))
                        session.submit(change) { result in
                            #expect((try? result.get()) == nil)
                            if told.add(.now) == 40 { continuation.resume() }
                        }
                    }
                }
            }
            #expect(try #require(told.last) - start < .seconds(10))
            try other.execute("ROLLBACK")
            try await store.probe()
        }

        @Test
        func `A full disk fails only the writes that need room, and the store recovers`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try await store.apply(.replace(["e": "v"]), to: "before")
            try await store.configureWriter("PRAGMA max_page_count = 1")
            var failures = 0
            for number in 0..<200 {
                let experimentIDs = (0..<50).map { (Identifier("experiment\($0)"), Identifier("variation\($0)")) }
                let operation = ProfileChange.Operation.replace(
                    ExperimentBucketMap(Dictionary(uniqueKeysWithValues: experimentIDs)))
                do {
                    try await store.apply(operation, to: Identifier("user\(number)"))
                } catch StorageError.unavailable(let reason) {
                    #expect(reason.contains("full"))
                    #expect(try reader.profile(of: Identifier("user\(number)")) == nil)
                    failures += 1
                }
            }
            #expect(failures > 0)
            #expect(try reader.variations(of: "before") == ["e": "v"])
            try await store.configureWriter("PRAGMA max_page_count = 1000000")
            #expect(await reasonOfFailure(store) == "")
            let metrics = store.metrics()
            #expect(try RawDatabase(path).value("SELECT count(*) FROM profiles") == "\(metrics.profiles)")
        }

        @Test
        func `When a transaction fails, none of its changes is stored`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            let release = await store.holdWriter()
            let before = store.submitTogether(.newUsers(3))
            store.writer.submit(
                { _ in throw SQLiteError(code: 13, message: "full") }, completion: { (_: Result<Void, _>) in })
            let after = store.submitTogether([.init(userID: "after", operation: .replace([:]))])
            release.signal()
            for result in await before.results() + after.results() {
                #expect(throws: StorageError.unavailable(reason: "the disk or the database is full")) {
                    try result.get()
                }
            }
            #expect(try reader.page(after: nil, limit: 10).isEmpty)
            #expect(await reasonOfFailure(store) == "")
            #expect(store.metrics().profiles == 1)
        }

        @Test
        func `A store whose file was deleted or moved refuses writes until it is back`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            try FileManager.default.moveItem(atPath: path, toPath: path + ".away")
            #expect(await reasonOfFailure(store).contains("moved"))
            try FileManager.default.moveItem(atPath: path + ".away", toPath: path)
            #expect(await reasonOfFailure(store) == "")
        }

        @Test
        func `Only the damaged profile fails, and it can be erased`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try await store.apply(.replace(["e": "v"]), to: "damaged")
            try RawDatabase(path).execute("UPDATE profiles SET record = x'ff', expires_at = 1")
            let release = await store.holdWriter()
            let submitted = store.submitTogether([
                .init(userID: "first", operation: .replace(["e": "v"])),
                .init(userID: "damaged", operation: .save(["e": "v"], onConflict: .replace)),
                .init(userID: "second", operation: .replace(["e": "v"])),
            ])
            release.signal()
            #expect(await submitted.results().map { (try? $0.get()) != nil } == [true, false, true])
            #expect(throws: StorageError.self) { try reader.profile(of: "damaged") }
            #expect(try reader.profile(of: "first") != nil)
            try await store.apply(.erase, to: "damaged")
            #expect(try reader.profile(of: "damaged") == nil)
            #expect(store.metrics().profiles == 2)
        }

        @Test
        func `Writes beyond the limit are refused at once, and the others are made`() async throws {
            let store = try SQLiteStore.make(in: directory) { $0.settings.waitingChanges = 10 }
            defer { store.close() }
            let release = await store.holdWriter()
            let submitted = store.submitTogether(.newUsers(30))
            #expect(store.metrics().refusedChanges == 20)
            release.signal()
            #expect(await submitted.results().filter { (try? $0.get()) != nil }.count == 10)
        }

        @Test
        func `Changes submitted as one are committed together, within the batch limit`() async throws {
            let store = try SQLiteStore.make(in: directory) { $0.batchLimit = 4 }
            defer { store.close() }
            let release = await store.holdWriter()
            let users = [ProfileChange].newUsers(15)
            let groups = stride(from: 0, to: 15, by: 3).map { first in
                Task { await store.applyAsOne(Array(users[first..<first + 3])) }
            }
            while store.metrics().waitingChanges < 15 { await Task.yield() }
            release.signal()
            for group in groups { #expect(await group.value.allSatisfy { (try? $0.get()) != nil }) }
            let metrics = store.metrics()
            #expect(metrics.profiles == 15 && metrics.waitingChanges == 0)
            // Two groups of three fill a batch of four; no group is split.
            #expect(metrics.commits == 3)
        }

        @Test
        func `While a write has waited too long, further writes are refused, and that one is made`() async throws {
            let store = try SQLiteStore.make(in: directory) { $0.settings.waitingSeconds = 0 }
            defer { store.close() }
            let release = await store.holdWriter()
            let first = store.submitTogether(.newUsers(1))
            let others = store.submitTogether(.newUsers(10))
            #expect(store.metrics().refusedChanges == 10)
            release.signal()
            #expect(await first.results().allSatisfy { (try? $0.get()) != nil })
            #expect(await others.results().allSatisfy { if case .failure(.overloaded) = $0 { true } else { false } })
            // The refused writes left nothing behind, and there is room again.
            try await store.apply(.replace(["e": "v"]), to: "last")
            #expect(store.metrics().profiles == 2)
        }

        @Test
        func `A crash loses no acknowledged write`() async throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            for number in 0..<20 {
                try await store.apply(.replace(["e": "v"]), to: Identifier("user\(number)"))
            }
            // The files as a process would leave them if it were killed now.
            let copy = try TemporaryDirectory()
            for (name, content) in try directory.contents() where !name.hasSuffix("-shm") {
                try content.write(to: URL(fileURLWithPath: copy.file(name)))
            }
            let recovered = try SQLiteStore.make(in: copy)
            defer { recovered.close() }
            let reader = try recovered.makeReader()
            defer { reader.close() }
            #expect(try reader.page(after: nil, limit: 100).count == 20)
            #expect(try RawDatabase(copy.file("holdfast.db")).value("PRAGMA integrity_check") == "ok")
        }
    }
}

/// When completions were called.
private final class Told: Sendable {
    private let moments = Mutex<[ContinuousClock.Instant]>([])

    /// - Returns: the number of completions so far.
    func add(_ moment: ContinuousClock.Instant) -> Int {
        moments.withLock { moments in
            moments.append(moment)
            return moments.count
        }
    }

    var last: ContinuousClock.Instant? { moments.withLock { $0.max() } }
}
