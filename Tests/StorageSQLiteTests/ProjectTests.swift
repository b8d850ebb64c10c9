import Bucketing
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("Datafiles and forced variations")
    struct ProjectTests {
        @Test
        func `A datafile is active for all stores on the file, and the former ones are history`() async throws {
            let directory = try TemporaryDirectory()
            let (first, second) = (try SQLiteStore.make(in: directory), try SQLiteStore.make(in: directory))
            defer { first.close() }
            defer { second.close() }
            let former = try #require(try await first.activate("1"))
            let changes = try second.projectChanges()
            let latter = try #require(try await first.activate("2", replacing: former.version))
            #expect(try await second.activate("3", replacing: former.version) == nil)
            #expect(try second.projectChanges() > changes)
            #expect(try second.datafiles(after: 0).map(\.revision) == ["2"])
            #expect(try second.datafiles(after: latter.version).isEmpty)
            #expect(try second.datafileHistory(sdkKey: "key", limit: 10).map(\.revision) == ["2", "1"])
        }

        @Test
        func
            `Assignments are stored only if they were decided with the newest datafile, of whatever store on the file`()
            async throws
        {
            let directory = try TemporaryDirectory()
            let (first, second) = (try SQLiteStore.make(in: directory), try SQLiteStore.make(in: directory))
            defer { first.close() }
            defer { second.close() }
            func assign(_ variation: Identifier, _ version: Int64, replacing: Identifier? = nil) async throws
                -> Identifier?
            {
                let proposal = ProfileChange.Candidate(experimentID: "e", variationID: variation, replacing: replacing)
                return try await second.apply(.assign([proposal], decidedWith: version), to: "user").profile?
                    .variationID(for: "e")
            }
            let former = try #require(try await first.activate("1")).version
            #expect(try await assign("a", former) == "a")
            let newest = try #require(try await first.activate("2", sdkKey: "other")).version
            for version in [0, former, newest + 1] {
                await #expect(throws: StorageError.staleDatafile) { try await assign("b", version, replacing: "a") }
                await #expect(throws: StorageError.staleDatafile) { try await assign("a", version) }
            }
            #expect(try await assign("b", newest, replacing: "a") == "b")
        }

        @Test
        func `A hundred datafiles of a project are kept by default, however many there were`() async throws {
            let directory = try TemporaryDirectory()
            let generous = try SQLiteStore.make(in: directory) { $0.settings.datafileHistory = 1_000 }
            for number in 1...120 { _ = try await generous.activate("\(number)") }
            generous.close()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            #expect(try store.datafileHistory(sdkKey: "key", limit: 1_000).count == 120)
            _ = try await store.activate("last")
            let kept = try store.datafileHistory(sdkKey: "key", limit: 1_000).map(\.revision)
            #expect(kept.count == 100 && kept.first == "last" && kept.last == "22")
        }
    }
}
