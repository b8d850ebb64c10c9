import Bucketing
import Foundation
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

@Suite("SQLite store: commits, retention and copies")
struct OperationTests {
    let directory: TemporaryDirectory
    var path: String { directory.file("holdfast.db") }

    init() throws {
        directory = try TemporaryDirectory()
    }

    @Test("Changes that wait together share a commit")
    func groupCommit() async throws {
        let store = try SQLiteStore.make(in: directory)
        defer { store.close() }
        let release = await store.holdWriter()
        async let results = store.applyTogether((0..<500).map { .init(userID: Identifier("u\($0)"), operation: .replace([:])) })
        while store.statistics().waitingChanges < 500 { await Task.yield() }
        release.signal()
        #expect(await results.allSatisfy { (try? $0.get()) != nil })
        #expect(store.statistics().commits == 1)
        #expect(store.statistics().changes == 500)
    }

    @Test("A batch is bounded")
    func batchLimit() async throws {
        let store = try SQLiteStore.make(in: directory) { $0.batchLimit = 100 }
        defer { store.close() }
        let release = await store.holdWriter()
        async let results = store.applyTogether((0..<500).map { .init(userID: Identifier("u\($0)"), operation: .replace([:])) })
        while store.statistics().waitingChanges < 500 { await Task.yield() }
        release.signal()
        _ = await results
        #expect(store.statistics().commits == 5)
    }

    @Test("What changes nothing is not committed")
    func noCommit() async throws {
        let store = try SQLiteStore.make(in: directory)
        defer { store.close() }
        try await store.apply(.replace(["e": "v"]), to: "user")
        let commits = store.statistics().commits
        try await store.apply(.merge(["e": "v"], onConflict: .replace), to: "user")
        try await store.apply(.erase, to: "nobody")
        #expect(store.statistics().commits == commits)
    }

    @Test("Closing does what waits")
    func closing() async throws {
        let store = try SQLiteStore.make(in: directory)
        async let results = store.applyTogether((0..<300).map { .init(userID: Identifier("u\($0)"), operation: .replace([:])) })
        while store.statistics().changes + UInt64(store.statistics().waitingChanges) == 0 { await Task.yield() }
        store.close()
        let stored = await results.filter { (try? $0.get()) != nil }.count
        #expect(try RawDatabase(path).value("SELECT count(*) FROM profiles") == "\(stored)")
    }

    @Test("Retention deletes what has expired, in small batches, and counts it")
    func retention() async throws {
        let clock = ManualClock()
        let rules = ProfileRules(assignmentTTL: .seconds(60))
        let store = try SQLiteStore.make(in: directory, rules: rules, clock: clock) {
            $0.retentionInterval = 0.02
            $0.retentionBatch = 7
        }
        defer { store.close() }
        for number in 0..<40 {
            try await store.apply(.replace(["e1": "v", "e2": "w"]), to: Identifier("u\(number)"))
        }
        try await store.apply(.override(experimentID: "e1", variationID: "forced"), to: "u0")
        // A damaged row does not keep the others.
        try await store.apply(.replace(["e": "v"]), to: "damaged")
        try RawDatabase(path).execute("UPDATE profiles SET record = x'ff' WHERE user_id = 'damaged'")
        clock.advance(by: .seconds(60))
        let deadline = ContinuousClock.now + .seconds(10)
        while store.statistics().expiredAssignments < 79, .now < deadline { await Task.yield() }
        #expect(store.statistics().expiredAssignments == 79)
        #expect(store.statistics().profiles == 2)
        #expect(try RawDatabase(path).value("SELECT group_concat(user_id) FROM profiles") == "damaged,u0")
    }

    @Test("A copy made under load is whole and consistent")
    func backup() async throws {
        let store = try SQLiteStore.make(in: directory)
        defer { store.close() }
        let done = Counter()
        async let writes: Void = {
            var number = 0
            while done.value == 0 {
                number += 1
                try await store.apply(.replace(["e": "v"]), to: Identifier("u\(number)"))
            }
        }()
        while store.statistics().profiles < 50 { await Task.yield() }
        let acknowledged = store.statistics().profiles
        let target = try TemporaryDirectory()
        try DatabaseMaintenance.backUp(path: path, to: target.file("holdfast.db"))
        done.raise(to: 1)
        try await writes
        #expect(try target.contents().keys.sorted() == ["holdfast.db"])
        #expect(try RawDatabase(target.file("holdfast.db")).value("PRAGMA integrity_check") == "ok")
        let copy = try SQLiteStore.make(in: target)
        defer { copy.close() }
        let reader = try copy.makeReader()
        defer { reader.close() }
        let profiles = try reader.page(after: nil, limit: 100_000).count
        #expect(profiles >= acknowledged)
        #expect(profiles == copy.statistics().profiles)
    }

    @Test("A copy replaces no file")
    func backupRefused() async throws {
        let store = try SQLiteStore.make(in: directory)
        defer { store.close() }
        let target = directory.file("copy.db")
        try Data("precious".utf8).write(to: URL(fileURLWithPath: target))
        #expect(throws: DatabaseError.self) { try DatabaseMaintenance.backUp(path: path, to: target) }
        #expect(try Data(contentsOf: URL(fileURLWithPath: target)) == Data("precious".utf8))
        #expect(throws: DatabaseError.self) {
            try DatabaseMaintenance.backUp(path: directory.file("none.db"), to: directory.file("other.db"))
        }
    }

    @Test("Only a database of ours is copied")
    func backupForeign() throws {
        let foreign = directory.file("foreign.db")
        try RawDatabase(foreign).execute("PRAGMA application_id = 5; CREATE TABLE t (a)")
        #expect(throws: DatabaseError.self) {
            try DatabaseMaintenance.backUp(path: foreign, to: directory.file("copy.db"))
        }
    }

    @Test("The log does not grow without bound while readers read")
    func logSize() async throws {
        let store = try SQLiteStore.make(in: directory)
        defer { store.close() }
        let reader = try store.makeReader()
        defer { reader.close() }
        for round in 0..<40 {
            let changes = (0..<500).map { number in
                ProfileChange(userID: Identifier("u\(number * 7)"), operation: .replace(["e": Identifier("v\(round)")]))
            }
            for result in await store.applyTogether(changes) { _ = try result.get() }
            _ = try reader.profile(of: "u0")
        }
        #expect(store.statistics().logBytes < 64 << 20)
    }
}
