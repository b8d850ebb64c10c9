import Bucketing
import Foundation
import JSON
import Migrations
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite struct AuditTests {
        private let directory: TemporaryDirectory
        private let clock = ManualClock()
        private let admin = Author(name: "on-call", requestID: "request-1")
        private var path: String { directory.file("holdfast.db") }

        init() throws {
            directory = try TemporaryDirectory()
        }

        private func makeStore(_ adjust: (inout SQLiteConfiguration) -> Void = { _ in }) throws -> SQLiteStore {
            try SQLiteStore.make(in: directory, clock: clock, adjust)
        }

        @Test func `An admin's change of a profile is recorded with what was before and after`() async throws {
            let store = try makeStore()
            defer { store.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            try await store.administer(.override(experimentID: "e", variationID: "w"), of: "user", by: admin)
            try await store.administer(.remove(experimentID: "e"), of: "user", by: admin)
            let entries = try await store.audit()
            #expect(entries.map(\.action) == ["assignment.remove", "override.set"])
            #expect(entries.map { $0.before.map(text) } == [
                #"{"variation_id":"w","source":"override"}"#, #"{"variation_id":"v","source":"saved"}"#,
            ])
            #expect(entries.map { $0.after.map(text) } == [nil, #"{"variation_id":"w","source":"override"}"#])
            #expect(entries.allSatisfy { $0.author == admin && $0.userID == "user" && $0.target == "e" })
            #expect(entries.allSatisfy { $0.recordedAt == clock.now })
            #expect(store.statistics().auditEntries == 2)
        }

        @Test func `A datafile and a forced variation are recorded, and not the body of the datafile`() async throws {
            let store = try makeStore()
            defer { store.close() }
            for revision in ["1", "2"] {
                #expect(try await store.putDatafile("{\"revision\":\"\(revision)\"}", revision, by: admin) != nil)
            }
            for key: Identifier? in ["a", "b", nil] { try await store.force(key, by: admin) }
            let entries = try await store.audit()
            #expect(entries.map(\.action) == [
                "forced_variation.remove", "forced_variation.set", "forced_variation.set", "datafile.put", "datafile.put",
            ])
            #expect(entries.map { $0.before.map(text) } == [
                #"{"variation_key":"b","sdk_key":"key"}"#, #"{"variation_key":"a","sdk_key":"key"}"#, nil,
                #"{"version":1,"revision":"1"}"#, nil,
            ])
            #expect(entries.map { $0.after.map(text) } == [
                nil, #"{"variation_key":"b","sdk_key":"key"}"#, #"{"variation_key":"a","sdk_key":"key"}"#,
                #"{"version":2,"revision":"2"}"#, #"{"version":1,"revision":"1"}"#,
            ])
        }

        @Test func `What app servers save, and what changes nothing, is not recorded`() async throws {
            let store = try makeStore()
            defer { store.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            try await store.apply(.assign([.init(experimentID: "f", variationID: "w")]), to: "user")
            try await store.administer(.remove(experimentID: "other"), of: "user", by: admin)
            try await store.administer(.erase, of: "nobody", by: admin)
            try await store.administer(.override(experimentID: "e", variationID: "v"), of: "user", by: admin)
            try await store.administer(.override(experimentID: "e", variationID: "v"), of: "user", by: admin)
            try await store.force(nil, by: admin)
            #expect(try await store.audit().map(\.action) == ["override.set"])
        }

        /// What makes one side of each change fail, and what must then not be there.
        @Test(arguments: ["audit", "profiles", "datafiles", "forced_variations"])
        func `Neither the change nor its entry is there without the other`(table: String) async throws {
            let store = try makeStore()
            defer { store.close() }
            try RawDatabase(path).execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON \(table) BEGIN SELECT RAISE(ABORT, 'refused'); END")
            func outcome(_ change: () async throws -> Void) async -> Bool {
                do {
                    try await change()
                    return true
                } catch {
                    return false
                }
            }
            let changes = [
                await outcome {
                    try await store.administer(.override(experimentID: "e", variationID: "v"), of: "user", by: admin)
                },
                await outcome { _ = try await store.putDatafile("{}", "1", by: admin) },
                await outcome { try await store.force("a", by: admin) },
            ]
            #expect(changes == ["profiles", "datafiles", "forced_variations"].map { table != "audit" && table != $0 })
            let stored = try ["profiles", "datafiles", "forced_variations"].map {
                try RawDatabase(path).value("SELECT count(*) FROM \($0)") == "1"
            }
            #expect(stored == changes)
            #expect(try await store.audit().count == changes.count { $0 })
        }

        @Test func `Erasing a user leaves nothing of the user in the log`() async throws {
            let store = try makeStore()
            defer { store.close() }
            try await store.administer(.override(experimentID: "e", variationID: "secret-w"), of: "secret-ada", by: admin)
            try await store.administer(.override(experimentID: "e", variationID: "v"), of: "bob", by: admin)
            try await store.administer(.erase, of: "secret-ada", by: admin)
            let entries = try await store.audit()
            #expect(entries.map(\.action) == ["profile.erase", "override.set", "override.set"])
            #expect(entries.map(\.userID) == [nil, "bob", nil])
            #expect(entries.map { $0.after == nil } == [true, false, true])
            let all = try RawDatabase(path).value("SELECT group_concat(quote(user_id) || target || quote(before) || quote(after)) FROM audit")
            #expect(!all.contains("secret"))
            // To erase once more finds nothing.
            try await store.administer(.erase, of: "secret-ada", by: admin)
            #expect(try await store.audit().count == 3)
        }

        @Test func `To erase what no profile shows is recorded, too`() async throws {
            let store = try makeStore()
            defer { store.close() }
            try await store.force("a", by: admin)
            try await store.administer(.erase, of: "user", by: admin)
            #expect(try await store.audit().map(\.action) == ["profile.erase", "forced_variation.set"])
        }

        @Test func `Details are bounded`() async throws {
            let store = try makeStore()
            defer { store.close() }
            let note = AuditNote(
                .experimentPut, of: String(repeating: "ä", count: 5_000), before: .string(String(repeating: "b", count: 4_094)),
                after: .string(String(repeating: "c", count: 4_095)))
            try await store.record(note, by: admin)
            let entry = try #require(try await store.audit().first)
            #expect(entry.target.utf8.count == 1_024)
            #expect(entry.before?.count == 4_096)
            #expect(entry.after.map(text) == #"{"omitted_bytes":4097}"#)
        }

        @Test func `Entries are found by each thing that they say, and page by page`() async throws {
            let store = try makeStore()
            defer { store.close() }
            for number in 0..<10 {
                let author = Author(name: number % 2 == 0 ? "even" : "odd")
                let target = "t\(number % 5)"
                let note = AuditNote(number < 5 ? .experimentPut : .experimentDelete, of: target, userID: Identifier("u\(number)"))
                try await store.record(note, by: author)
                clock.advance(by: .seconds(1))
            }
            let start = clock.now - 10_000
            func found(_ adjust: (inout AuditQuery) -> Void) async throws -> [Int64] {
                try await store.audit(adjust).map { $0.id - 1 }
            }
            #expect(try await found { $0.author = "odd" } == [9, 7, 5, 3, 1])
            #expect(try await found { $0.action = .experimentPut } == [4, 3, 2, 1, 0])
            #expect(try await found { $0.target = "t3" } == [8, 3])
            #expect(try await found { $0.userID = "u6" } == [6])
            #expect(try await found { $0.since = start + 7_000 } == [9, 8, 7])
            #expect(try await found { $0.until = start + 2_000 } == [1, 0])
            #expect(try await found { $0.limit = 3 } == [9, 8, 7])
            #expect(try await found { ($0.after, $0.limit) = (8, 3) } == [6, 5, 4])
            #expect(try await found { ($0.author, $0.target) = ("odd", "t0") } == [5])
        }

        @Test func `Old entries are deleted in small batches`() async throws {
            let (groups, continuation) = AsyncStream<Void>.makeStream()
            let store = try makeStore {
                $0.aroundCompletions = { complete in
                    complete()
                    continuation.yield()
                }
                $0.retentionInterval = 0.02
                $0.retentionBatch = 7
                $0.auditRetention = .seconds(60)
            }
            defer { store.close() }
            for _ in 0..<40 { try await store.record(AuditNote(.tokensReload, of: "old"), by: admin) }
            clock.advance(by: .seconds(1))
            try await store.record(AuditNote(.tokensReload, of: "young"), by: admin)
            clock.advance(by: .seconds(60))
            for await _ in groups where store.statistics().deletedAuditEntries >= 40 { break }
            #expect(try await store.audit().map(\.target) == ["young"])
        }

        private func text(_ bytes: [UInt8]) -> String {
            String(decoding: bytes, as: UTF8.self)
        }
    }
}

extension SQLiteStore {
    fileprivate func administer(
        _ operation: ProfileChange.Operation, of userID: Identifier, by author: Author
    ) async throws {
        _ = try await withCheckedContinuation { continuation in
            submit(ProfileChange(userID: userID, operation: operation), by: author) { continuation.resume(returning: $0) }
        }.get()
    }

    fileprivate func putDatafile(_ content: String, _ revision: String, by author: Author) async throws -> StoredDatafile? {
        try await withCheckedContinuation { continuation in
            putDatafile(
                Array(content.utf8), sdkKey: "key", revision: revision, replacing: nil,
                note: AuditNote(.datafilePut, of: "key"), by: author
            ) { continuation.resume(returning: $0) }
        }.get()
    }

    fileprivate func force(_ variationKey: Identifier?, by author: Author) async throws {
        _ = try await withCheckedContinuation { continuation in
            setForcedVariation(variationKey, experimentKey: "e", userID: "user", sdkKey: "key", by: author) {
                continuation.resume(returning: $0)
            }
        }.get()
    }

    fileprivate func record(_ note: AuditNote, by author: Author) async throws {
        try await withCheckedContinuation { continuation in
            record(note, by: author) { continuation.resume(returning: $0) }
        }.get()
    }

    fileprivate func audit(_ adjust: (inout AuditQuery) -> Void = { _ in }) async throws -> [AuditEntry] {
        var query = AuditQuery(limit: 1_000)
        adjust(&query)
        return try await withCheckedContinuation { continuation in
            auditEntries(query) { continuation.resume(returning: $0) }
        }.get()
    }
}
