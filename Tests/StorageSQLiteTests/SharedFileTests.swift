import Bucketing
import Dispatch
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    /// Two stores on one file stand for two processes, which share only the file.
    @Suite("One file, two stores")
    struct SharedFileTests {
        @Test
        func `Readers that have cached a user see a write of the other store at once`() async throws {
            let directory = try TemporaryDirectory()
            let (first, second) = (try SQLiteStore.make(in: directory), try SQLiteStore.make(in: directory))
            defer { first.close() }
            defer { second.close() }
            let (one, two) = (try first.makeReader(), try second.makeReader())
            defer { one.close() }
            defer { two.close() }
            #expect(try two.profile(of: "user") == nil)
            for number in 0..<50 {
                let variationID = Identifier("v\(number)")
                let store = number % 3 == 0 ? second : first
                try await store.apply(.replace(["e": variationID]), to: "user")
                #expect(try one.variations(of: "user") == ["e": variationID])
                #expect(try two.variations(of: "user") == ["e": variationID])
            }
            try await first.apply(.erase, to: "user")
            #expect(try two.profile(of: "user") == nil)
        }

        @Test
        func `Lookups after a write of their own process hit the cache`() async throws {
            let directory = try TemporaryDirectory()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try await store.apply(.replace(["e": "v"]), to: "read")
            _ = try reader.profile(of: "read")
            for number in 0..<20 {
                try await store.apply(.replace(["e": Identifier("v\(number)")]), to: "written")
                _ = try reader.profile(of: "read")
            }
            #expect(reader.cacheMetrics.hits == 20)
        }

        @Test
        func `The cache has the new state of a user whom its own process changes or erases`() async throws {
            let directory = try TemporaryDirectory()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            #expect(try reader.variations(of: "user") == nil)
            for number in 0..<20 {
                let variationID = Identifier("v\(number)")
                try await store.apply(.replace(["e": variationID]), to: "user")
                #expect(try reader.variations(of: "user") == ["e": variationID])
            }
            try await store.apply(.erase, to: "user")
            #expect(try reader.variations(of: "user") == nil)
            #expect(reader.cacheMetrics.misses == 1)
        }

        @Test
        func `A reader whose inbox overflows clears its cache`() async throws {
            let directory = try TemporaryDirectory()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try await store.apply(.replace(["e": "v"]), to: "user")
            _ = try reader.variations(of: "user")
            let long = Identifier(String(repeating: "v", count: 200))
            let map = Dictionary(uniqueKeysWithValues: (0..<500).map { (Identifier("e\($0)"), long) })
            for number in 0..<25 { try await store.apply(.replace(.init(map)), to: Identifier("other\(number)")) }
            try await store.apply(.replace(["e": "w"]), to: "user")
            #expect(try reader.variations(of: "user") == ["e": "w"])
            #expect(reader.cacheMetrics.misses == 2)
            #expect(try reader.variations(of: "user") == ["e": "w"])
            #expect(reader.cacheMetrics.hits == 1)
        }

        @Test
        func `A commit is seen even before readers are notified of it`() async throws {
            let directory = try TemporaryDirectory()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            try await store.apply(.replace(["e": "old"]), to: "user")
            try await store.apply(.replace(["e": "new"]), to: "other")
            #expect(try reader.variations(of: "user") == ["e": "old"])
            store.writer.notices.announce(3)
            try RawDatabase(store.configuration.path).execute(
                """
                BEGIN;
                UPDATE profiles SET record = (SELECT record FROM profiles WHERE user_id = 'other');
                UPDATE counters SET commits = 3;
                COMMIT;
                """)
            #expect(try reader.variations(of: "user") == ["e": "new"])
            #expect(try reader.variations(of: "user") == ["e": "new"])
            let record = try #require(try reader.profile(of: "user")).bytes
            var changes = UserChanges()
            Identifier("user").withKey { changes.appendProfile(record, of: $0) }
            store.writer.notices.deliver(.init(number: 3, changes: changes))
            #expect(try reader.variations(of: "user") == ["e": "new"])
            let hits = reader.cacheMetrics.hits
            #expect(try reader.variations(of: "user") == ["e": "new"])
            #expect(reader.cacheMetrics.hits == hits + 1)
        }

        @Test
        func `A reader of a database without any commit uses its cache`() async throws {
            let directory = try TemporaryDirectory()
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let reader = try store.makeReader()
            defer { reader.close() }
            _ = try reader.profile(of: "nobody")
            _ = try reader.profile(of: "nobody")
            #expect(reader.cacheMetrics.hits == 1)
        }

        @Test(arguments: 0..<6)
        func `All readers see random changes through two stores as a model does`(seed: UInt64) async throws {
            let directory = try TemporaryDirectory()
            let stores = [
                try SQLiteStore.make(in: directory) { $0.cacheBytes = 4_096 },
                // Scans all users again and again.
                try SQLiteStore.make(in: directory) { $0.userScanPause = 0 },
            ]
            defer { for store in stores { store.close() } }
            let readers = try stores.flatMap { [try $0.makeReader(), try $0.makeReader()] }
            defer { for reader in readers { reader.close() } }
            var generator = SeededGenerator(seed: seed)
            var model: [Identifier: [Identifier: Identifier]] = [:]
            for step in 0..<250 {
                let userID = Identifier("user\(Int.random(in: 0..<8, using: &generator))")
                let store = stores[Int.random(in: 0..<2, using: &generator)]
                if Int.random(in: 0..<5, using: &generator) == 0 {
                    try await store.apply(.erase, to: userID)
                    model[userID] = nil
                } else {
                    let experimentID = Identifier("e\(step % 3)")
                    let variationID = Identifier("v\(step)")
                    try await store.apply(.save([experimentID: variationID], onConflict: .replace), to: userID)
                    model[userID, default: [:]][experimentID] = variationID
                }
                let reader = readers[Int.random(in: 0..<4, using: &generator)]
                for number in 0..<8 {
                    let userID = Identifier("user\(number)")
                    #expect(try reader.variations(of: userID) == model[userID])
                }
            }
        }

        @Test
        func `A lookup sees every write acknowledged before its batch began, while both stores write`() async throws {
            let directory = try TemporaryDirectory()
            let stores = [try SQLiteStore.make(in: directory), try SQLiteStore.make(in: directory)]
            defer { for store in stores { store.close() } }
            let acknowledged = (0..<2).map { _ in Counter() }
            let (isDone, stale) = (Counter(), Counter())
            let threads = DispatchGroup()
            for store in stores {
                // A queue of its own: busy readers on the shared ones would leave no thread for the writing tasks.
                DispatchQueue(label: "reader").async(group: threads) {
                    guard let reader = try? store.makeReader() else { return stale.raise(to: 1) }
                    defer { reader.close() }
                    while isDone.value == 0 {
                        for user in 0..<2 {
                            let floor = acknowledged[user].value
                            let found = try? reader.variations(of: Identifier("user\(user)"))?["e"]
                            if (found.flatMap { Int($0.string) } ?? 0) < floor { stale.raise(to: floor) }
                        }
                    }
                }
            }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for user in 0..<2 {
                    group.addTask {
                        for number in 1...300 {
                            let map: ExperimentBucketMap = ["e": Identifier("\(number)")]
                            try await stores[user].apply(.replace(map), to: Identifier("user\(user)"))
                            acknowledged[user].raise(to: number)
                        }
                    }
                }
                try await group.waitForAll()
            }
            isDone.raise(to: 1)
            await withCheckedContinuation { continuation in
                threads.notify(queue: .global()) { continuation.resume() }
            }
            #expect(stale.value == 0)
        }

        @Test
        func `Of concurrent proposals through two stores one is kept, and both report it`() async throws {
            let directory = try TemporaryDirectory()
            let stores = [try SQLiteStore.make(in: directory), try SQLiteStore.make(in: directory)]
            defer { for store in stores { store.close() } }
            for round in 0..<20 {
                let userID = Identifier("user\(round)")
                async let first = stores[0].apply(.assign([.init(experimentID: "e", variationID: "a")]), to: userID)
                async let second = stores[1].apply(.assign([.init(experimentID: "e", variationID: "b")]), to: userID)
                let answers = try await [first, second].map { $0.profile?.variationID(for: "e") }
                #expect(answers[0] == answers[1])
            }
        }

        @Test
        func `Only the file is left when the last store is closed`() async throws {
            let directory = try TemporaryDirectory()
            let (first, second) = (try SQLiteStore.make(in: directory), try SQLiteStore.make(in: directory))
            let reader = try first.makeReader()
            try await first.apply(.replace(["e": "v"]), to: "user")
            _ = try reader.profile(of: "user")
            first.close()
            try await second.apply(.replace(["e": "v"]), to: "other")
            second.close()
            reader.close()
            #expect(try directory.contents().keys.sorted() == ["holdfast.db"])
        }
    }
}
