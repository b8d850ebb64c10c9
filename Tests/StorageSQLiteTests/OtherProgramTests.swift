import Bucketing
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    /// Writes of another program do not raise the number of commits.
    @Suite("Another program on the file")
    struct OtherProgramTests {
        private let directory: TemporaryDirectory
        private let store: SQLiteStore
        private let reader: SQLiteSession
        private let other: RawDatabase

        private static let copyUser =
            "INSERT OR REPLACE INTO profiles SELECT 'new', record, expires_at FROM profiles WHERE user_id = 'user'"

        init() async throws {
            directory = try TemporaryDirectory()
            store = try SQLiteStore.make(in: directory)
            reader = try store.makeReader()
            other = try RawDatabase(directory.file("holdfast.db"))
            try await store.apply(.replace(["e": "v"]), to: "user")
            try await store.apply(.replace(["e": "w"]), to: "other")
        }

        private func close() {
            reader.close()
            store.close()
        }

        @Test
        func `Rows that another program inserts, changes and deletes are seen at once`() throws {
            defer { close() }
            for _ in 0..<3 {
                for user in ["user", "new", "new"] { _ = try reader.variations(of: Identifier(user)) }
                try other.execute(Self.copyUser)
                #expect(try reader.variations(of: "new") == ["e": "v"])
                try other.execute(
                    "UPDATE profiles SET record = (SELECT record FROM profiles WHERE user_id = 'other') WHERE user_id = 'new'"
                )
                #expect(try reader.variations(of: "new") == ["e": "w"])
                try other.execute("DELETE FROM profiles WHERE user_id = 'new'")
                #expect(try reader.variations(of: "new") == nil)
            }
            // Once it stops writing, lookups hit the cache again.
            let misses = reader.cacheMetrics.misses
            for _ in 0..<10 { #expect(try reader.variations(of: "user") == ["e": "v"]) }
            #expect(reader.cacheMetrics.misses <= misses + 1)
        }

        @Test
        func `The rows of another program are seen also between commits of this process`() async throws {
            defer { close() }
            for number in 0..<3 {
                _ = try reader.variations(of: "new")
                _ = try reader.variations(of: "other")
                try await store.apply(.replace(["e": "before"]), to: "third")
                try other.execute(
                    "\(Self.copyUser); UPDATE profiles SET record = (SELECT record FROM profiles WHERE user_id = 'user')"
                )
                try await store.apply(.replace(["e": Identifier("after\(number)")]), to: "third")
                #expect(try reader.variations(of: "new") == ["e": "v"])
                #expect(try reader.variations(of: "other") == ["e": "v"])
                #expect(try reader.variations(of: "third") == ["e": Identifier("after\(number)")])
                try await store.apply(.erase, to: "new")
                try await store.apply(.replace(["e": "w"]), to: "other")
            }
        }

        @Test
        func
            `A user known to have no profile is looked up again after another program wrote, before and after this process writes`()
            async throws
        {
            defer { close() }
            store.awaitScan()
            #expect(try reader.variations(of: "new") == nil)
            store.awaitScan()
            #expect(try reader.variations(of: "new") == nil)
            #expect(store.metrics().userFilterBytes > 0)
            try other.execute(Self.copyUser)
            #expect(try reader.variations(of: "new") == ["e": "v"])
            try other.execute("UPDATE profiles SET user_id = 'newer' WHERE user_id = 'new'")
            try await store.apply(.replace(["e": "x"]), to: "user")
            #expect(try reader.variations(of: "newer") == ["e": "v"])
            #expect(try reader.variations(of: "new") == nil)
            #expect(try reader.variations(of: "user") == ["e": "x"])
        }

        @Test
        func `Readers see a file that was restored under the store`() async throws {
            defer { close() }
            let copy = directory.file("copy.db")
            try DatabaseMaintenance.backUp(path: directory.file("holdfast.db"), to: copy)
            for number in 0..<5 { try await store.apply(.replace(["e": "late"]), to: Identifier("late\(number)")) }
            store.awaitScan()
            try await store.apply(.replace(["e": "late"]), to: "user")
            #expect(try reader.variations(of: "late1") == ["e": "late"])
            #expect(try reader.variations(of: "user") == ["e": "late"])
            try RawDatabase(copy).execute("UPDATE profiles SET user_id = 'restored' WHERE user_id = 'other'")
            try other.restore(from: copy)
            #expect(try reader.variations(of: "late1") == nil)
            #expect(try reader.variations(of: "user") == ["e": "v"])
            #expect(try reader.variations(of: "restored") == ["e": "w"])
            try await store.apply(.replace(["e": "after"]), to: "user")
            #expect(try reader.variations(of: "user") == ["e": "after"])
            #expect(try reader.variations(of: "restored") == ["e": "w"])
        }

        @Test(
            arguments: 0..<4
        )
        func `All readers see random changes by two stores and another program as a model does`(seed: UInt64)
            async throws
        {
            defer { close() }
            let second = try SQLiteStore.make(in: directory) { $0.userScanPause = 0 }
            defer { second.close() }
            let readers = [reader, try second.makeReader()]
            defer { readers[1].close() }
            let templates: [Identifier] = ["user", "other"]
            var generator = SeededGenerator(seed: seed)
            var model: [Identifier: Identifier] = [:]
            for _ in 0..<200 {
                let userID = Identifier("u\(Int.random(in: 0..<6, using: &generator))")
                let isErasing = Int.random(in: 0..<4, using: &generator) == 0
                let choice = Int.random(in: 0..<2, using: &generator)
                model[userID] = isErasing ? nil : choice == 0 ? "v" : "w"
                switch Int.random(in: 0..<3, using: &generator) {
                case 0 where isErasing:
                    try other.execute("DELETE FROM profiles WHERE user_id = '\(userID)'")
                case 0:
                    try other.execute(
                        """
                        INSERT OR REPLACE INTO profiles
                        SELECT '\(userID)', record, expires_at FROM profiles WHERE user_id = '\(templates[choice])'
                        """)
                case let number:
                    let operation = model[userID].map { ProfileChange.Operation.replace(["e": $0]) } ?? .erase
                    try await (number == 1 ? store : second).apply(operation, to: userID)
                }
                guard Bool.random(using: &generator) else { continue }
                let reader = readers[Int.random(in: 0..<2, using: &generator)]
                for number in 0..<6 {
                    let userID = Identifier("u\(number)")
                    #expect(try reader.variations(of: userID) == model[userID].map { ["e": $0] })
                }
            }
        }
    }
}
