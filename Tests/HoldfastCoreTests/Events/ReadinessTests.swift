import Chronology
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

    @Test func `A store that does not answer makes the server not ready, until it does`() async throws {
        let readiness = Readiness(store: store, timeout: 0.01, freshness: .seconds(600))
        let first = await readiness.check()
        #expect(first == "the store has not responded for 0.01 seconds")
        // Nobody waits for the store a second time, and no further probe is sent behind the one that goes on.
        #expect(await readiness.check() == first)
        await store.answer(.success(()))
        while await readiness.check() != nil { await Task.yield() }
        #expect(store.probes == 1)
    }

    @Test func `All who ask at the same time are told by one look`() async {
        let readiness = Readiness(store: store, timeout: 600, freshness: .seconds(600))
        let asking = (0..<2).map { _ in Task.immediate { await readiness.check() } }
        await store.answer(.failure(.unavailable(reason: "disk full")))
        for task in asking { #expect(await task.value == "disk full") }
        #expect(store.probes == 1)
    }

    @Test func `A write that failed makes the server not ready at once, and as long as the store says so`() async {
        let readiness = Readiness(store: store, timeout: 600, freshness: .seconds(600))
        let asking = Task.immediate { await readiness.check() }
        await store.answer(.success(()))
        #expect(await asking.value == nil)
        store.failure.withLock { $0 = .unavailable(reason: "disk full") }
        #expect(await readiness.check() == "disk full")
        // The look still serves those who ask.
        #expect(store.probes == 1)
        store.failure.withLock { $0 = nil }
        #expect(await readiness.check() == nil)
    }

    @Test func `A server that shuts down is not ready, whatever its store says`() async {
        let readiness = Readiness(store: store)
        readiness.shutDown()
        #expect(await readiness.check() == "the server is shutting down")
        #expect(store.probes == 0)
    }
}

/// A store of which probes are answered when the test says so.
private final class SilentStore: Store {
    let clock = StoreClock(systemWallClock)
    private let store = InMemoryStore()
    private let waiting = AsyncStream<@Sendable (Result<Void, StorageError>) -> Void>.makeStream()
    private let count = Atomic(0)
    let failure = Mutex<StorageError?>(nil)

    var rules: ProfileRules { store.rules }
    var writeFailure: StorageError? { failure.withLock { $0 } }

    var probes: Int { count.load(ordering: .sequentiallyConsistent) }

    /// Answers a probe, as soon as there is one.
    func answer(_ result: Result<Void, StorageError>) async {
        for await completion in waiting.stream { return completion(result) }
    }

    func probe() async throws(StorageError) {
        try await completed { completion in
            count.add(1, ordering: .sequentiallyConsistent)
            waiting.continuation.yield(completion)
        }
    }

    func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        try store.makeSession(on: executor)
    }

    func metrics() -> StoreMetrics { store.metrics() }

    func close() { store.close() }
}
