import Bucketing
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Datafiles and forced variations")
    struct ProjectTests {
        private func put(
            _ content: String, in store: SQLiteStore, replacing: Int64? = nil, sdkKey: String = "key",
            by author: Author = Author(name: "test")
        ) async throws -> StoredDatafile? {
            try await withCheckedContinuation { continuation in
                store.putDatafile(
                    Array(content.utf8), sdkKey: sdkKey, revision: content, replacing: replacing,
                    note: AuditNote(.datafilePut, of: sdkKey), by: author
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

        @Test("Assignments are stored only if they were decided with the newest datafile of all projects")
        func decisionsOfAnotherDatafile() async throws {
            let directory = try TemporaryDirectory()
            let (first, second) = (try SQLiteStore.make(in: directory), try SQLiteStore.make(in: directory))
            defer { first.close() }
            defer { second.close() }
            func assign(_ variation: Identifier, _ version: Int64, replacing: Identifier? = nil) async throws -> Identifier? {
                let proposal = ProfileChange.Proposal(experimentID: "e", variationID: variation, replacing: replacing)
                return try await second.apply(.assign([proposal], decidedWith: version), to: "user").profile?.variationID(for: "e")
            }
            let former = try #require(try await put("1", in: first)).version
            #expect(try await assign("a", former) == "a")
            let newest = try #require(try await put("2", in: first, sdkKey: "other")).version
            for version in [0, former, newest + 1] {
                await #expect(throws: StorageError.staleDatafile) { try await assign("b", version, replacing: "a") }
                await #expect(throws: StorageError.staleDatafile) { try await assign("a", version) }
            }
            #expect(try await assign("b", newest, replacing: "a") == "b")
        }

        @Test("So many datafiles of a project are kept as the store is told, and the last that a start brought", arguments: [1, 3])
        func history(count: Int) async throws {
            let directory = try TemporaryDirectory()
            let store = try SQLiteStore.make(in: directory) { $0.datafileHistory = count }
            defer { store.close() }
            for number in 1...2 { _ = try await put("start \(number)", in: store, by: .processUser) }
            for number in 1...10 {
                _ = try await put("\(number)", in: store)
                _ = try await put("other \(number)", in: store, sdkKey: "other")
            }
            let kept = (0..<count).map { "\(10 - $0)" }
            #expect(try store.datafileHistory(sdkKey: "key", limit: 100).map(\.revision) == kept + ["start 2"])
            #expect(try store.datafileHistory(sdkKey: "other", limit: 100).map(\.revision) == kept.map { "other \($0)" })
            #expect(try store.datafiles(after: 0).map(\.revision).sorted() == ["10", "other 10"])
            #expect(try store.lastDatafile(sdkKey: "key", by: .processUser)?.revision == "start 2")
        }

        @Test("A hundred datafiles of a project are kept by default, however many there were")
        func defaultHistory() async throws {
            let directory = try TemporaryDirectory()
            let generous = try SQLiteStore.make(in: directory) { $0.datafileHistory = 1_000 }
            for number in 1...120 { _ = try await put("\(number)", in: generous) }
            generous.close()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            #expect(try store.datafileHistory(sdkKey: "key", limit: 1_000).count == 120)
            _ = try await put("last", in: store)
            let kept = try store.datafileHistory(sdkKey: "key", limit: 1_000).map(\.revision)
            #expect(kept.count == 100 && kept.first == "last" && kept.last == "22")
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
