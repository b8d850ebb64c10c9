import Bucketing
import Chronology
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

        /// A trigger makes one side of each change fail; the other must not be stored then.
        @Test(arguments: ["audit", "profiles", "datafiles", "forced_variations"])
        func `Neither a change nor its entry is stored without the other`(table: String) async throws {
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
                await outcome { _ = try await store.activate("{}", revision: "1", by: admin) },
                await outcome { try await store.force("a", by: admin) },
            ]
            #expect(changes == ["profiles", "datafiles", "forced_variations"].map { table != "audit" && table != $0 })
            let stored = try ["profiles", "datafiles", "forced_variations"].map {
                try RawDatabase(path).value("SELECT count(*) FROM \($0)") == "1"
            }
            #expect(stored == changes)
            #expect(try await store.audit().count == changes.count { $0 })
        }

        @Test func `Erasing a user leaves nothing of the user in the table`() async throws {
            let store = try makeStore()
            defer { store.close() }
            try await store.administer(
                .override(experimentID: "e", variationID: "secret-w"), of: "secret-ada", by: admin)
            try await store.administer(.override(experimentID: "e", variationID: "v"), of: "bob", by: admin)
            try await store.administer(.erase, of: "secret-ada", by: admin)
            let all = try RawDatabase(path).value(
                "SELECT group_concat(quote(user_id) || target || quote(before) || quote(after)) FROM audit")
            #expect(!all.contains("secret"))
        }

        @Test func `Old entries are deleted in small batches`() async throws {
            let store = try makeStore {
                $0.settings.retentionInterval = 0.02
                $0.settings.retentionBatch = 7
                $0.settings.auditRetention = .seconds(60)
            }
            defer { store.close() }
            for _ in 0..<40 { try await store.record(AuditNote(.tokensReload, of: "old"), by: admin) }
            clock.advance(by: .seconds(1))
            try await store.record(AuditNote(.tokensReload, of: "young"), by: admin)
            clock.advance(by: .seconds(60))
            while store.metrics().deletedAuditEntries < 40 { try await Task.sleep(for: .milliseconds(1)) }
            #expect(try await store.audit().map(\.target) == ["young"])
        }
    }
}
