import Synchronization

/// Work of one kind that is done in batches, each in a transaction of its own: the next one is asked for when the one
/// before is done, and however often it is started, one batch at a time.
final class BatchChain: Sendable {
    typealias Done = @Sendable (_ isMore: Bool) -> Void

    private let isRunning = Atomic(false)

    /// - Parameter batch: begins a batch; calls back when it is done, with whether there is more to do.
    func start(_ batch: @escaping @Sendable (_ done: @escaping Done) -> Void) {
        guard !isRunning.exchange(true, ordering: .acquiringAndReleasing) else { return }
        run(batch)
    }

    private func run(_ batch: @escaping @Sendable (_ done: @escaping Done) -> Void) {
        batch { [self] isMore in
            if isMore { run(batch) } else { isRunning.store(false, ordering: .releasing) }
        }
    }
}
