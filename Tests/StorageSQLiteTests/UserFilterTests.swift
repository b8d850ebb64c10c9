import Bucketing
import Glibc
import Storage
import TestSupport
import Testing

@testable import StorageSQLite

extension SQLiteStoreTests {
    @Suite("User filter")
    struct UserFilterTests {
        private let directory: TemporaryDirectory

        init() throws {
            directory = try TemporaryDirectory()
        }

        /// A store that knows all its users, and a reader of it.
        private func makeStore(
            of users: Int, _ adjust: (inout SQLiteConfiguration) -> Void = { _ in }
        ) async throws -> (SQLiteStore, SQLiteSession) {
            let store = try SQLiteStore.make(in: directory, adjust)
            for result in await store.applyAsOne(.newUsers(users)) { _ = try result.get() }
            store.awaitScan()
            #expect(store.metrics().userFilterBytes > 0)
            return (store, try store.makeReader())
        }

        /// A store of the existing file, and a reader of it.
        private func reopenStore() throws -> (SQLiteStore, SQLiteSession) {
            let store = try SQLiteStore.make(in: directory)
            return (store, try store.makeReader())
        }

        @Test(
            arguments: [1, 2_500])
        func `A user without a profile is not looked up in the database, however many profiles there are`(users: Int)
            async throws
        {
            let (store, reader) = try await makeStore(of: users)
            defer { store.close() }
            defer { reader.close() }
            for number in 0..<1_000 { #expect(try reader.profile(of: Identifier("nobody\(number)")) == nil) }
            #expect(reader.cacheMetrics.misses < 20)
            #expect(reader.cacheMetrics.entries < 20)
            for number in 0..<users { #expect(try reader.profile(of: Identifier("u\(number)")) != nil) }
        }

        @Test
        func `An existing database is scanned at the first miss, and not before`() async throws {
            let (former, _) = try await makeStore(of: 100)
            former.close()
            let (store, reader) = try reopenStore()
            defer { store.close() }
            defer { reader.close() }
            #expect(try reader.profile(of: "u1") != nil)
            store.awaitScan()
            #expect(store.metrics().userFilterBytes == 0)
            #expect(try reader.profile(of: "nobody") == nil)
            store.awaitScan()
            #expect(store.metrics().userFilterBytes > 0)
            let misses = reader.cacheMetrics.misses
            #expect(try reader.profile(of: "nobody else") == nil)
            #expect(reader.cacheMetrics.misses == misses)
        }

        @Test
        func `A user added by a commit that spans a scan is found`() throws {
            let store = try SQLiteStore.make(in: directory)
            defer { store.close() }
            let knownUsers = store.writer.userFilter
            let hash = Identifier("new").withKey(\.hash)
            knownUsers.add([hash])
            knownUsers.scanIfNeeded()
            store.awaitScan()
            knownUsers.didCommit(Commit(number: 1), after: knownUsers.last.header)
            let filter = try #require(knownUsers.filter(asOf: Commit(number: 1)))
            #expect(filter.mayContain(hash))
        }

        @Test
        func `A user added by another process is found, before and after this one writes`() async throws {
            let (store, reader) = try await makeStore(of: 10)
            defer { store.close() }
            defer { reader.close() }
            let other = try SQLiteStore.make(in: directory)
            defer { other.close() }
            #expect(try reader.profile(of: "new") == nil)
            try await other.apply(.replace(["e": "v"]), to: "new")
            #expect(try reader.variations(of: "new") == ["e": "v"])
            try await store.apply(.replace([:]), to: "u1")
            #expect(try reader.variations(of: "new") == ["e": "v"])
            try await other.apply(.replace(["e": "v"]), to: "newer")
            #expect(try reader.variations(of: "newer") == ["e": "v"])
        }

        @Test
        func `A scan that sees another process's commit does not revalidate the former filter`() async throws {
            let (store, _) = try await makeStore(of: 3_000) { $0.userScanPause = 0 }
            defer { store.close() }
            let knownUsers = store.writer.userFilter
            let former = try #require(knownUsers.latestFilter)
            // Full, so that the next scan is due.
            for hash in 0..<UInt64(former.capacity) * 2 { former.add(hash &* 0x9E37_79B9_7F4A_7C15) }
            let other = try SQLiteStore.make(in: directory)
            defer { other.close() }
            // A user who is not a false positive of the full filter.
            let new = try #require(
                (0..<1_000).lazy.map { Identifier("new\($0)") }.first {
                    !former.mayContain($0.withKey(\.hash))
                })
            try await other.apply(.replace([:]), to: new)
            let commit = try store.file.reader(lockTimeout: 1).lastCommit().commit
            let last = try #require(commit)
            #expect(last.number == 2)
            let deadline = ContinuousClock.now + .seconds(60)
            repeat {
                knownUsers.scanIfNeeded()
                if let filter = knownUsers.filter(asOf: last) { #expect(filter.mayContain(new.withKey(\.hash))) }
            } while knownUsers.latestFilter === former && .now < deadline
            #expect(knownUsers.latestFilter !== former)
        }

        @Test
        func `A change of a user added by another process builds on the stored profile`() async throws {
            let (store, reader) = try await makeStore(of: 10)
            defer { store.close() }
            defer { reader.close() }
            let other = try SQLiteStore.make(in: directory)
            defer { other.close() }
            try await other.apply(.replace(["e1": "first"]), to: "new")
            let proposals = ["e1", "e2"].map {
                ProfileChange.Candidate(experimentID: Identifier($0), variationID: "late")
            }
            let result = try await store.apply(.assign(proposals), to: "new")
            #expect(result.existed && result.profile?.variations == ["e1": "first", "e2": "late"])
            #expect(try reader.variations(of: "new") == ["e1": "first", "e2": "late"])
            #expect(store.metrics().assignments == 2)
        }

        @Test(
            arguments: [
                (pause: 0.0, isLarger: true), (pause: 60.0, isLarger: false),
            ])
        func `A filter that is full is replaced by a larger one, but not again at once`(pause: Double, isLarger: Bool)
            async throws
        {
            let (store, reader) = try await makeStore(of: 1) {
                $0.minimumUserCapacity = 100
                $0.userScanPause = pause
            }
            defer { store.close() }
            defer { reader.close() }
            let small = store.metrics().userFilterBytes
            for result in await store.applyAsOne(.newUsers(4_000)) { _ = try result.get() }
            try await store.apply(.replace([:]), to: "another")
            store.awaitScan()
            #expect((store.metrics().userFilterBytes > small) == isLarger)
            for number in 0..<4_000 { #expect(try reader.profile(of: Identifier("u\(number)")) != nil) }
        }

        @Test(
            arguments: [
                Int64.min, -1, 1 << 40, .max,
            ])
        func `Tampered counters cost neither memory nor the server`(count: Int64) throws {
            try SQLiteStore.make(in: directory).close()
            try RawDatabase(directory.file("holdfast.db")).execute(
                "UPDATE counters SET profiles = \(count), commits = \(count)")
            let (store, reader) = try reopenStore()
            defer { store.close() }
            defer { reader.close() }
            #expect(try reader.profile(of: "nobody") == nil)
            store.awaitScan()
            #expect((1...(4 << 20)).contains(store.metrics().userFilterBytes))
            store.writer.userFilter.didCommit(Commit(number: 1), after: nil)
        }

        @Test
        func `A file that replaced the database is not used`() async throws {
            let (former, _) = try await makeStore(of: 10)
            former.close()
            let (store, reader) = try reopenStore()
            defer { store.close() }
            defer { reader.close() }
            #expect(try reader.profile(of: "u1") != nil)
            let path = directory.file("holdfast.db")
            try RawDatabase(path).execute("VACUUM INTO '\(path)-copy'")
            try RawDatabase("\(path)-copy").execute("DELETE FROM profiles; UPDATE counters SET profiles = 0")
            #expect(rename("\(path)-copy", path) == 0)
            #expect(try reader.profile(of: "nobody") == nil)
            store.awaitScan()
            for number in 0..<10 { #expect(try reader.profile(of: Identifier("u\(number)")) != nil) }
        }

        @Test(arguments: 0..<4)
        func `No user added or erased during a scan or between scans is missed`(seed: UInt64) async throws {
            var generator = SeededGenerator(seed: seed)
            let (store, reader) = try await makeStore(of: 3) {
                $0.userScanPause = 0
                // A small capacity at first, so that there are many scans.
                $0.minimumUserCapacity = 1
                $0.cacheBytes = 4_096
            }
            defer { store.close() }
            defer { reader.close() }
            var model: Set<Int> = Set(0..<3)
            for _ in 0..<150 {
                let numbers = Set(
                    (0..<Int.random(in: 1...200, using: &generator)).map { _ in
                        Int.random(in: 0..<9_000, using: &generator)
                    })
                let isErasing = Int.random(in: 0..<4, using: &generator) == 0
                let changes = numbers.map {
                    ProfileChange(userID: Identifier("u\($0)"), operation: isErasing ? .erase : .replace([:]))
                }
                for result in await store.applyTogether(changes) { _ = try result.get() }
                if isErasing { model.subtract(numbers) } else { model.formUnion(numbers) }
                for _ in 0..<50 {
                    let number = numbers.randomElement(using: &generator) ?? 0
                    #expect(try (reader.profile(of: Identifier("u\(number)")) != nil) == model.contains(number))
                    let other = Int.random(in: 0..<9_000, using: &generator)
                    #expect(try (reader.profile(of: Identifier("u\(other)")) != nil) == model.contains(other))
                }
            }
        }
    }
}

@Suite("Bloom filter")
struct BloomFilterTests {
    @Test(arguments: [(0.5, 0.005), (1.0, 0.06)])
    func `All added users are found, and few others`(fill: Double, bound: Double) {
        var generator = SystemRandomNumberGenerator()
        let filter = BloomFilter(capacity: 20_000)
        let users = (0..<Int(20_000 * fill)).map { _ in generator.next() }
        for user in users { filter.add(user) }
        #expect(users.allSatisfy(filter.mayContain))
        let others = (0..<20_000).filter { _ in filter.mayContain(generator.next()) }
        #expect(Double(others.count) < 20_000 * bound)
        #expect(!filter.isFull)
        for _ in 0..<2_000 { filter.add(generator.next()) }
        #expect(filter.isFull == (fill == 1))
    }

    @Test(arguments: [Int.min, 0, 1, 63, 64, 65])
    func `Has a capacity of at least one`(capacity: Int) {
        let filter = BloomFilter(capacity: capacity)
        #expect(!filter.mayContain(0) && !filter.mayContain(.max))
        for hash: UInt64 in [0, 1, .max, 1 << 63] {
            filter.add(hash)
            #expect(filter.mayContain(hash))
        }
    }
}

@Suite("User changes")
struct UserChangesTests {
    @Test(arguments: 0..<4)
    func `Are listed in order, unchanged`(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var changes = UserChanges()
        var expected: [String] = []
        for _ in 0..<500 {
            let userID = Identifier(String(repeating: "ü", count: Int.random(in: 0..<40, using: &generator)))
            let record = (0..<Int.random(in: 0..<40, using: &generator)).map { UInt8($0) }
            switch Int.random(in: 0..<3, using: &generator) {
            case 0:
                userID.withKey { changes.appendProfile(record, of: $0) }
                expected.append("\(userID) \(record)")
            case 1:
                userID.withKey { changes.appendProfile(nil, of: $0) }
                expected.append("\(userID) none")
            default:
                userID.withKey { changes.appendAttributes(of: $0) }
                expected.append("\(userID) attributes")
            }
        }
        var told: [String] = []
        changes.forEach { change in
            let userID = String(decoding: change.key.bytes, as: UTF8.self)
            #expect(change.key.hash == Identifier(userID).withKey(\.hash))
            switch change.content {
            case .profile(let record): told.append("\(userID) \(record.map { "\(Array($0))" } ?? "none")")
            case .attributes: told.append("\(userID) attributes")
            }
        }
        #expect(told == expected)
    }
}

extension SQLiteStore {
    /// Waits until no scan for users goes on.
    func awaitScan() {
        let deadline = ContinuousClock.now + .seconds(60)
        while writer.userFilter.isScanning, .now < deadline { usleep(1_000) }
    }
}
