import Bucketing
import Storage
import Synchronization
import TestSupport
import Testing

/// The store that other tests rely on.
@Suite("In-memory store")
struct InMemoryStoreTests {
    @Test(arguments: StoreContract.all)
    func `Keeps the contract`(_ contract: StoreContract) async throws {
        try await contract.run { Self.make($0, .immediate) }
    }

    @Test(arguments: StoreContract.all)
    func `Keeps the contract when it completes changes late and out of order`(_ contract: StoreContract) async throws {
        try await contract.run { Self.make($0, .shuffled(seed: 1)) }
    }

    private static func make(_ options: StoreContract.Options, _ timing: InMemoryStore.Timing) -> InMemoryStore {
        InMemoryStore(
            rules: options.rules, datafileHistory: options.datafileHistory, timing: timing,
            clock: options.clock.wallClock)
    }

    @Test
    func `Changes of several users complete out of order, and those of one user in order`() async throws {
        let store = InMemoryStore(timing: .shuffled(seed: 7))
        defer { store.close() }
        let completed = Mutex<[Identifier]>([])
        let changes = (0..<100).map { number in
            ProfileChange(userID: Identifier("u\(number % 10)"), operation: .replace(["e": Identifier("\(number)")]))
        }
        let session = try BackgroundSession(store, label: "test")
        await withCheckedContinuation { continuation in
            session.run { session in
                store.suspend()
                defer { store.resume() }
                for change in changes {
                    session.submit(change) { result in
                        let variation = (try? result.get())?.profile?.variationID(for: "e") ?? ""
                        let count = completed.withLock { completed in
                            completed.append(variation)
                            return completed.count
                        }
                        if count == changes.count { continuation.resume() }
                    }
                }
            }
        }
        let numbers = completed.withLock { $0.compactMap { Int($0.string) } }
        #expect(numbers != Array(0..<100))
        for user in 0..<10 { #expect(numbers.filter { $0 % 10 == user } == (0..<10).map { $0 * 10 + user }) }
    }

    @Test
    func `Fails on demand, and stores nothing then`() async throws {
        let store = InMemoryStore()
        defer { store.close() }
        let reader = try store.makeReader()
        let failure = StorageError.unavailable(reason: "as demanded")
        store.failWrites(with: failure)
        await #expect(throws: failure) { try await store.apply(.replace(["e": "v"]), to: "user") }
        await #expect(throws: failure) { try await store.activate("1") }
        #expect(store.writeFailure == failure)
        store.failWrites(with: nil)
        #expect(try reader.profile(of: "user") == nil)
        store.failReads(with: failure)
        #expect(throws: failure) { try reader.profile(of: "user") }
        #expect(throws: failure) { try reader.attributes(of: "user") }
        store.failReads(with: nil)
        try await store.apply(.replace(["e": "v"]), to: "user")
        #expect(try reader.variations(of: "user") == ["e": "v"])
    }
}
