import Bucketing
public import Dispatch
public import Storage
internal import Synchronization

/// Whether the server is ready for requests: its store responds, and it is not shutting down. A load balancer asks this
/// by `GET /readyz`.
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
    ///   - timeout: the seconds after which a store that does not respond to a probe counts as not ready.
    ///   - freshness: for how long the result of a probe is used.
    public init(store: any Store, timeout: Double = 5, freshness: DispatchTimeInterval = .milliseconds(500)) {
        reads = ProbedState(
            timeout, freshness, { () throws(StorageError) in try await store.probeReads() },
            failure: { store.readFailure })
        writes = ProbedState(
            timeout, freshness, { () throws(StorageError) in try await store.probe() },
            failure: { store.readFailure ?? store.writeFailure })
    }

    /// Makes every check from now on report that the server is not ready.
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
/// A check uses the result of the last probe while it is fresh. Otherwise it waits for the probe in progress, or begins
/// one. A probe that takes too long counts as failed, and so do all checks until it ends: no further probes are begun
/// meanwhile.
private final class ProbedState: Sendable {
    private struct State {
        /// The result of the last probe of the store, and its time.
        var lastResult: Result<Void, StorageError>?
        var lastProbe = DispatchTime(uptimeNanoseconds: 0)
        /// The checks that wait for the probe in progress.
        var waiting: [@Sendable (String?) -> Void] = []
        /// The number of probes that have begun.
        var probes: UInt64 = 0
        /// Whether the last one is in progress.
        var isProbing = false
        /// Whether the probe in progress has taken longer than ``timeout``.
        var isLate = false
    }

    private static let executor = DispatchExecutor(label: "readiness")
    private let probeStore: @Sendable () async throws(StorageError) -> Void
    /// Returns a failure that the store knows of, even if the probe succeeds.
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

    /// Returns what fails; `nil` if nothing does.
    func check() async -> String? {
        await settled { check($0) }
    }

    /// Calls back with the failure: at once if the last result can be used, otherwise after the probe.
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
            state.probes += 1
            return .probe(state.probes)
        }
        switch step {
        case .complete(let reason): completion(reason)
        case .wait: break
        case .probe(let number): probe(number)
        }
    }

    /// Probes the store in the background, and reports a failure if it takes too long.
    ///
    /// - Parameter number: the number of the probe, so that its timeout does not concern a later one.
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
                state.isLate = state.isProbing && state.probes == number
                return state.isLate
            }
        }
    }

    /// Stores a result and passes it to all waiting callers.
    ///
    /// - Parameter isNews: updates the state, and returns whether the result is still relevant.
    private func report(_ result: Result<Void, StorageError>, if isNews: (inout State) -> Bool) {
        let waiting = state.withLock { state -> [@Sendable (String?) -> Void] in
            guard isNews(&state) else { return [] }
            state.lastResult = result
            state.lastProbe = .now()
            defer { state.waiting = [] }
            return state.waiting
        }
        for completion in waiting { completion(reason(result)) }
    }

    /// Returns what fails according to the result of a probe; `nil` if nothing does.
    private func reason(_ result: Result<Void, StorageError>) -> String? {
        switch result {
        case .success: failure()?.description
        case .failure(let error): error.description
        }
    }
}
