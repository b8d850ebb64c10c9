import Bucketing
public import Dispatch
public import Storage
internal import Synchronization

/// The readiness of the server for requests, which a load balancer asks by `GET /readyz`. The server is ready if its
/// store responds, and if the server is not shutting down.
public final class Readiness: Sendable {
    /// The operations for which the server must be ready.
    public enum Operations: Sendable {
        /// Lookups, and decisions about users who have an assignment.
        case reads
        /// All operations.
        case readsAndWrites
    }

    private let reads: ProbedState
    private let writes: ProbedState
    private let isShuttingDown = Atomic<Bool>(false)

    /// - Parameters:
    ///   - timeout: the time in seconds after which a store that does not respond to a probe counts as not ready.
    ///   - freshness: the time for which the result of a probe is used.
    public init(store: any Store, timeout: Double = 5, freshness: DispatchTimeInterval = .milliseconds(500)) {
        reads = ProbedState(
            timeout, freshness, { () throws(StorageError) in try await store.probeReads() },
            failure: { store.readFailure })
        writes = ProbedState(
            timeout, freshness, { () throws(StorageError) in try await store.probe() },
            failure: { store.readFailure ?? store.writeFailure })
    }

    /// Makes all further checks report that the server is not ready.
    public func shutDown() {
        isShuttingDown.store(true, ordering: .relaxed)
    }

    /// Returns why the server is not ready; `nil` if it is.
    public func check(_ operations: Operations = .readsAndWrites) async -> String? {
        guard !isShuttingDown.load(ordering: .relaxed) else { return "the server is shutting down" }
        return switch operations {
        case .reads: await reads.check()
        case .readsAndWrites: await writes.check()
        }
    }
}

/// The state of a store, determined by probes.
///
/// A check uses the result of the last probe while the result is fresh. Otherwise the check waits for the probe in
/// progress, or begins a probe. A probe that takes too long counts as failed. Until it ends, all checks fail at once
/// and begin no further probe, because that probe would wait as well.
private final class ProbedState: Sendable {
    private struct State {
        /// The result of the last probe of the store, and its time.
        var lastResult: Result<Void, StorageError>?
        var lastProbe = DispatchTime(uptimeNanoseconds: 0)
        /// The checks that wait for the probe in progress.
        var waiting: [@Sendable (String?) -> Void] = []
        /// The number of the last probe that has begun, from 1.
        var probeNumber: UInt64 = 0
        /// Whether this probe is in progress.
        var isProbing = false
        /// Whether the probe in progress has taken longer than ``timeout``.
        var isLate = false
    }

    private static let executor = DispatchExecutor(label: "readiness")
    private let probeStore: @Sendable () async throws(StorageError) -> Void
    /// Returns the failure that the store has noticed itself; `nil` if there is none. It counts even if the probe
    /// succeeds.
    private let failure: @Sendable () -> StorageError?
    private let state = Mutex(State())
    private let freshness: DispatchTimeInterval
    private let timeout: Double

    init(
        _ timeout: Double, _ freshness: DispatchTimeInterval,
        _ probe: @escaping @Sendable () async throws(StorageError) -> Void,
        failure: @escaping @Sendable () -> StorageError?
    ) {
        self.timeout = timeout
        self.freshness = freshness
        probeStore = probe
        self.failure = failure
    }

    /// Returns the failure of the store as text; `nil` if there is none.
    func check() async -> String? {
        await settled { check($0) }
    }

    /// Calls back with the failure of the store: at once if the last result can be used, otherwise after a probe.
    private func check(_ completion: @escaping @Sendable (String?) -> Void) {
        enum Step {
            case complete(String?)
            case wait
            case probe(UInt64)
        }
        let step = state.withLock { state -> Step in
            if let result = state.lastResult, state.isLate || DispatchTime.now() < state.lastProbe + freshness {
                return .complete(reason(result))
            }
            state.waiting.append(completion)
            if state.isProbing { return .wait }
            state.isProbing = true
            state.probeNumber += 1
            return .probe(state.probeNumber)
        }
        switch step {
        case .complete(let reason): completion(reason)
        case .wait: break
        case .probe(let number): probe(number)
        }
    }

    /// Probes the store in the background, and reports a failure if the probe takes too long.
    ///
    /// - Parameter number: the number of the probe. Its timeout must not affect a later probe.
    private func probe(_ number: UInt64) {
        Task(executorPreference: Self.executor) {
            let result = await Result.of { () throws(StorageError) in try await self.probeStore() }
            self.report(result) { state in
                state.isProbing = false
                state.isLate = false
                return true
            }
        }
        DispatchQueue.global().asyncAfter(deadline: .now() + timeout) { [self] in
            report(.failure(.unavailable(reason: "the store has not responded for \(timeout) seconds"))) { state in
                state.isLate = state.isProbing && state.probeNumber == number
                return state.isLate
            }
        }
    }

    /// Stores a result and passes it to all waiting checks.
    ///
    /// - Parameter update: updates the state, and returns whether the result is still relevant. The result of a timeout
    ///   is not relevant after the probe has ended.
    private func report(_ result: Result<Void, StorageError>, if update: (inout State) -> Bool) {
        let waiting = state.withLock { state -> [@Sendable (String?) -> Void] in
            guard update(&state) else { return [] }
            state.lastResult = result
            state.lastProbe = .now()
            let waiting = state.waiting
            state.waiting = []
            return waiting
        }
        for completion in waiting { completion(reason(result)) }
    }

    /// Returns the failure that the result of a probe shows, or else one that the store has noticed itself; `nil` if
    /// there is none.
    private func reason(_ result: Result<Void, StorageError>) -> String? {
        switch result {
        case .success: failure()?.description
        case .failure(let error): error.description
        }
    }
}
