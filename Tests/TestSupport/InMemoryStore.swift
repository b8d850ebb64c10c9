import Bucketing
import Dispatch
public import Storage
import Synchronization

/// A store of all facets that keeps everything in memory, for tests. It can complete changes late and out of order
/// between users, as a store behind a network does, and it can fail on demand.
public final class InMemoryStore: Sendable {
    public enum Timing: Sendable {
        /// A change is made, and its completion called, before the call returns.
        case immediate
        /// Changes are made later, on a thread of the store. Those of one user keep their order; of different users, a
        /// random one is next.
        case shuffled(seed: UInt64)
    }

    /// A change that waits.
    private struct Pending {
        /// `nil` for a change that keeps its order among all others.
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

        /// Takes a random change that may be next.
        mutating func takePending() -> Pending? {
            let candidates = pending.indices.filter { index in
                pending[..<index].allSatisfy { earlier in
                    guard let userID = pending[index].userID, let other = earlier.userID else { return false }
                    return userID != other
                }
            }
            return candidates.randomElement(using: &random).map { pending.remove(at: $0) }
        }
    }

    let clock: WallClock
    private let timing: Timing
    private let state: Mutex<State>
    private let queue = DispatchQueue(label: "in-memory-store")

    public init(
        rules: ProfileRules = ProfileRules(), datafileHistory: Int = 100, timing: Timing = .immediate,
        clock: @escaping WallClock = systemWallClock
    ) {
        self.clock = clock
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

    /// Makes a change now or later, depending on the timing.
    ///
    /// - Parameter userID: whose change it is; `nil` for a change that keeps its order among all others.
    func change<Value: Sendable>(
        of userID: Identifier?,
        _ body: @escaping @Sendable (inout InMemoryTables) throws(StorageError) -> Value,
        completion: @escaping @Sendable (Result<Value, StorageError>) -> Void
    ) {
        schedule(userID) { [self] in completion(result(of: body)) }
    }

    func result<Value: Sendable>(
        of body: @Sendable (inout InMemoryTables) throws(StorageError) -> Value
    ) -> Result<Value, StorageError> {
        state.withLock { state in
            if let error = state.isClosed ? .closed : state.writeFailure {
                state.tables.statistics.failedChanges += 1
                return .failure(error)
            }
            return state.tables.change(body)
        }
    }

    func schedule(_ userID: Identifier?, _ perform: @escaping @Sendable () -> Void) {
        guard case .shuffled = timing else { return perform() }
        state.withLock { $0.pending.append(Pending(userID: userID, perform: perform)) }
        queue.async { [self] in state.withLock { $0.takePending() }?.perform() }
    }

    func read<Value>(_ body: (InMemoryTables) -> sending Value) throws(StorageError) -> Value {
        try readResult(body).get()
    }

    func readResult<Value>(_ body: (InMemoryTables) -> sending Value) -> Result<Value, StorageError> {
        state.withLock { state in
            if let error = state.isClosed ? .closed : state.readFailure { return .failure(error) }
            return .success(body(state.tables))
        }
    }

    public func probe(completion: @escaping @Sendable (Result<Void, StorageError>) -> Void) {
        change(of: nil, { _ in }, completion: completion)
    }

    public var writeFailure: StorageError? { state.withLock(\.writeFailure) }

    public func statistics() -> StoreStatistics {
        state.withLock { state in
            var statistics = state.tables.statistics
            statistics.waitingChanges = state.pending.count
            return statistics
        }
    }

    public func close() {
        // Makes what waits first.
        queue.sync {}
        state.withLock { $0.isClosed = true }
    }
}
