import Bucketing
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Datafiles and forced variations")
    struct ProjectTests {
        private func put(
            _ content: String, in store: SQLiteStore, replacing: Int64? = nil, sdkKey: String = "key"
        ) async throws -> StoredDatafile? {
            try await withCheckedContinuation { continuation in
                store.putDatafile(
                    Array(content.utf8), sdkKey: sdkKey, revision: content, replacing: replacing,
                    note: AuditNote(.datafilePut, of: sdkKey), by: Author(name: "test")
                ) { continuation.resume(returning: $0) }
            }.get()
        }

        private func force(_ variationKey: Identifier?, in store: SQLiteStore) async throws -> Identifier? {
            try await withCheckedContinuation { continuation in
                store.setForcedVariation(variationKey, experimentKey: "e", userID: "user", sdkKey: "key", by: Author(name: "test")) {
                    continuation.resume(returning: $0)
                }
            }.get()
        }

        @Test("A datafile is in force for all stores on the file, and the former ones are history")
        func datafiles() async throws {
            let directory = try TemporaryDirectory()
            let (first, second) = (try SQLiteStore.make(in: directory), try SQLiteStore.make(in: directory))
            defer { first.close() }
            defer { second.close() }
            let former = try #require(try await put("1", in: first))
            let changes = try second.projectChanges()
            let latter = try #require(try await put("2", in: first, replacing: former.version))
            #expect(try await put("3", in: second, replacing: former.version) == nil)
            #expect(try second.projectChanges() > changes)
            #expect(try second.datafiles(after: 0).map(\.revision) == ["2"])
            #expect(try second.datafiles(after: latter.version).isEmpty)
            #expect(try second.datafileHistory(sdkKey: "key", limit: 10).map(\.revision) == ["2", "1"])
        }

        @Test("A forced variation is told, replaced and taken back")
        func forcedVariations() async throws {
            let directory = try TemporaryDirectory()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            #expect(try await force("a", in: store) == nil)
            #expect(try await force("b", in: store) == "a")
            #expect(try store.forcedVariations().map(\.variationKey) == ["b"])
            #expect(try await force(nil, in: store) == "b")
            #expect(try store.forcedVariations().isEmpty)
        }

        @Test("Erasing a user leaves no forced variation")
        func erasing() async throws {
            let directory = try TemporaryDirectory()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            _ = try await force("a", in: store)
            try await store.apply(.erase, to: "user")
            #expect(try store.forcedVariations().isEmpty)
        }
    }
}
