import Definitions
import Dispatch
@testable import HoldfastCore
import Storage
import TestSupport
import Synchronization
import Testing

/// When a server says that it is ready.
@Suite struct ReadinessTests {
    private let store = SilentStore()

    /// What one who asks is told; waits until then.
    private func answer(of readiness: Readiness) async -> String? {
        await withCheckedContinuation { continuation in readiness.check { continuation.resume(returning: $0) } }
    }

    @Test func `A store that does not answer makes the server not ready, until it does`() async throws {
        let readiness = Readiness(store: store, timeout: 0.01)
        let first = await answer(of: readiness)
        #expect(first == "the store has not responded for 0.01 seconds")
        // Nobody waits for the store a second time, and no further probe is sent behind the one that goes on.
        #expect(await answer(of: readiness) == first)
        #expect(store.probes == 1)

        store.answer(.success(()))
        #expect(await answer(of: readiness) == nil)
    }

    @Test func `All who ask at the same time are told by one look`() {
        let readiness = Readiness(store: store)
        let answers = Mutex<[String?]>([])
        for _ in 0..<2 { readiness.check { answer in answers.withLock { $0.append(answer) } } }
        store.answer(.failure(.unavailable(reason: "disk full")))
        let told = answers.withLock { $0 }
        #expect(told == ["disk full", "disk full"])
        #expect(store.probes == 1)
    }

    @Test func `A write that failed makes the server not ready at once, and as long as the store says so`() async {
        let readiness = Readiness(store: store)
        readiness.check { _ in }
        store.answer(.success(()))
        #expect(await answer(of: readiness) == nil)
        store.failure.withLock { $0 = .unavailable(reason: "disk full") }
        #expect(await answer(of: readiness) == "disk full")
        // The look still serves those who ask.
        #expect(store.probes == 1)
        store.failure.withLock { $0 = nil }
        #expect(await answer(of: readiness) == nil)
    }

    @Test func `A server that shuts down is not ready, whatever its store says`() async {
        let readiness = Readiness(store: store)
        readiness.shutDown()
        #expect(await answer(of: readiness) == "the server is shutting down")
        #expect(store.probes == 0)
    }
}

/// A store of which probes are answered when the test says so.
private final class SilentStore: Store {
    let clock = StoreClock(systemWallClock)
    private let store = InMemoryStore()
    private let waiting = Mutex<[@Sendable (Result<Void, StorageError>) -> Void]>([])
    private let count = Atomic(0)
    let failure = Mutex<StorageError?>(nil)

    var rules: ProfileRules { store.rules }
    var writeFailure: StorageError? { failure.withLock { $0 } }

    var probes: Int { count.load(ordering: .sequentiallyConsistent) }

    func answer(_ result: Result<Void, StorageError>) {
        let waiting = waiting.withLock { waiting in
            defer { waiting = [] }
            return waiting
        }
        for completion in waiting { completion(result) }
    }

    func probe(_ completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        waiting.withLock { $0.append(completion) }
        count.add(1, ordering: .sequentiallyConsistent)
    }

    func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        try store.makeSession(on: executor)
    }

    func metrics() -> StoreMetrics { store.metrics() }

    func close() { store.close() }
}
