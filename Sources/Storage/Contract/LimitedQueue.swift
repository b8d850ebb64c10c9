public import Dispatch
internal import Synchronization

/// A queue that runs a limited number of pieces of work at the same time. Further work waits and starts in FIFO order.
///
/// A concurrent `DispatchQueue` alone starts a thread for each piece of work that finds all threads busy, up to
/// hundreds. As long as work comes, these threads stay, with the memory of their stacks and of the allocator's caches.
public final class LimitedQueue: Sendable {
    private typealias Work = @Sendable () -> Void

    private struct State {
        /// The number of pieces of work that run.
        var running = 0
        /// Further work, in FIFO order.
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
        await settled { done in _ = add(mostWaiting: .max) { done(work()) } }
    }

    /// Runs work as ``run(_:)`` does, unless the queue is full.
    ///
    /// - Parameter mostWaiting: the maximum number of pieces of work that wait.
    /// - Returns: the result; `nil` if this many pieces of work wait already. The work is not run then.
    public func run<Value: Sendable>(
        mostWaiting: Int, _ work: @escaping @Sendable () -> Value
    ) async -> Value? {
        await settled { done in
            if !add(mostWaiting: mostWaiting, { done(work()) }) { done(nil) }
        }
    }

    /// Blocks until all work has ended that was running or waiting at the time of the call.
    public func wait() {
        // A block of the queue takes over waiting work before it ends, so the barrier waits for that work, too.
        queue.sync(flags: .barrier) {}
    }

    /// Starts the work, or lets it wait.
    ///
    /// - Returns: `false` if too many pieces of work wait; the work never runs then.
    private func add(mostWaiting: Int, _ work: @escaping Work) -> Bool {
        enum Step {
            case start, wait, refuse
        }
        let step = state.withLock { state -> Step in
            guard state.running >= limit else {
                state.running += 1
                return .start
            }
            guard state.waiting.count < mostWaiting else { return .refuse }
            state.waiting.append(work)
            return .wait
        }
        if step == .start { queue.async { self.run(from: work) } }
        return step != .refuse
    }

    /// Runs work on a thread of the queue, and then the waiting work until none is left.
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
