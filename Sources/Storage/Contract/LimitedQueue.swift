public import Dispatch
internal import Synchronization

/// A queue that runs a limited number of pieces of work at the same time, and the others in the order in which they came.
///
/// A concurrent `DispatchQueue` starts a thread for each piece of work that finds all threads busy, up to hundreds. These
/// threads, with their stacks and the allocator's caches, then stay for as long as any work comes.
public final class LimitedQueue: Sendable {
    private typealias Work = @Sendable () -> Void

    private struct State {
        var running = 0
        var waiting: [Work] = []
    }

    private let queue: DispatchQueue
    private let limit: Int
    private let state = Mutex(State())

    /// - Parameter limit: how many pieces of work run at the same time.
    public init(label: String, limit: Int, qos: DispatchQoS) {
        queue = DispatchQueue(label: label, qos: qos, attributes: .concurrent)
        self.limit = limit
    }

    /// Runs work that computes or blocks, without blocking the caller's executor, and returns its result.
    public func run<Value: Sendable>(_ work: @escaping @Sendable () -> Value) async -> Value {
        await settled { done in add { done(work()) } }
    }

    private func add(_ work: @escaping Work) {
        let begins = state.withLock { state in
            guard state.running < limit else {
                state.waiting.append(work)
                return false
            }
            state.running += 1
            return true
        }
        if begins { queue.async { self.run(from: work) } }
    }

    private func run(from first: @escaping Work) {
        var next: Work? = first
        while let work = next {
            work()
            next = state.withLock { state in
                guard state.waiting.isEmpty else { return state.waiting.removeFirst() }
                state.running -= 1
                return nil
            }
        }
    }
}
