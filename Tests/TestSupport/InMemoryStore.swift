import Bucketing
import Chronology
import Dispatch
public import Storage
import Synchronization

/// A store that keeps everything in memory, for tests. It can complete operations late and out of order between users, as a
/// store behind a network does, and it can fail on demand.
public final class InMemoryStore: Store {
    public enum Timing: Sendable {
        /// An operation is done, and its completion called, before the call returns.
        case immediate
        /// Operations are done later, and complete on the session's executor. Those about one user keep their order; of
        /// different users, a random one is next.
        case shuffled(seed: UInt64)
    }

    /// An operation that waits.
    private struct Pending {
        /// `nil` for an operation that keeps its order among all others.
        let userID: Identifier?
        let perform: @Sendable () -> Void
    }

    private struct State {
        var tables: InMemoryTables
        var random = SeededGenerator(seed: 0)
        var pending: [Pending] = []
        var writeFailure: StorageError?
        var readFailure: StorageError?
        var isClosed = false

        /// Takes a random operation that may be next.
        mutating func takePending() -> Pending? {
            var candidates: [Int] = []
            var users: Set<Identifier> = []
            for (index, operation) in pending.enumerated() {
                guard let userID = operation.userID else {
                    if index == 0 { candidates.append(index) }
                    break
                }
                if users.insert(userID).inserted { candidates.append(index) }
            }
            return candidates.randomElement(using: &random).map { pending.remove(at: $0) }
        }
    }

    public let rules: ProfileRules
    public let clock: StoreClock
    let timing: Timing
    private let state: Mutex<State>
    private let queue = DispatchQueue(label: "in-memory-store")

    public init(
        rules: ProfileRules = ProfileRules(), datafileHistory: Int = 100, timing: Timing = .immediate,
        clock: @escaping WallClock = systemWallClock
    ) {
        self.rules = rules
        self.clock = StoreClock(clock)
        self.timing = timing
        var state = State(tables: InMemoryTables(rules: rules, datafileHistory: datafileHistory))
        if case .shuffled(let seed) = timing { state.random = SeededGenerator(seed: seed) }
        self.state = Mutex(state)
    }

    /// Makes all changes fail with an error from now on; `nil` ends that.
    public func failWrites(with error: StorageError?) {
        state.withLock { $0.writeFailure = error }
    }

    /// Makes all reads fail with an error from now on; `nil` ends that.
    public func failReads(with error: StorageError?) {
        state.withLock { $0.readFailure = error }
    }

    /// Holds back what is done later, so that all that is submitted meanwhile is shuffled.
    public func suspend() {
        queue.suspend()
    }

    public func resume() {
        queue.resume()
    }

    func result<Value: Sendable>(
        of body: @Sendable (inout InMemoryTables) throws(StorageError) -> Value
    ) -> Result<Value, StorageError> {
        state.withLock { state in
            if let error = state.isClosed ? .closed : state.writeFailure {
                state.tables.metrics.failedChanges += 1
                return .failure(error)
            }
            return state.tables.change(body)
        }
    }

    func read<Value: Sendable>(_ body: (InMemoryTables) -> Value) -> Result<Value, StorageError> {
        state.withLock { state in
            if let error = state.isClosed ? .closed : state.readFailure { return .failure(error) }
            return .success(body(state.tables))
        }
    }

    /// Does something now or later, depending on the timing.
    ///
    /// - Parameter userID: whom it is about; `nil` for what keeps its order among all others.
    func schedule(_ userID: Identifier?, _ perform: @escaping @Sendable () -> Void) {
        guard case .shuffled = timing else { return perform() }
        state.withLock { $0.pending.append(Pending(userID: userID, perform: perform)) }
        queue.async { [self] in state.withLock { $0.takePending() }?.perform() }
    }

    public func makeSession(on executor: any StoreExecutor) throws(StorageError) -> sending any StoreSession {
        try read { _ in }.get()
        return InMemorySession(self, on: executor)
    }

    public func probe() async throws(StorageError) {
        try await completed { completion in schedule(nil) { [self] in completion(result { _ in }) } }
    }

    public func probeReads() async throws(StorageError) {
        try await completed { completion in schedule(nil) { [self] in completion(read { _ in }) } }
    }

    public var readFailure: StorageError? { state.withLock(\.readFailure) }

    public var writeFailure: StorageError? { state.withLock(\.writeFailure) }

    public func metrics() -> StoreMetrics {
        state.withLock { state in
            var metrics = state.tables.metrics
            metrics.waitingChanges = state.pending.count
            return metrics
        }
    }

    public func close() {
        // Does what waits first.
        queue.sync {}
        state.withLock { $0.isClosed = true }
    }
}
