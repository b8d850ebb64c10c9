package import Dispatch
import Storage
import Synchronization

/// Work that is repeated in the background until the task is closed or released. Each repetition begins an interval
/// after the preceding one has ended.
package final class RepeatedTask: Sendable {
    private let interval: DispatchTimeInterval
    /// An executor for this work only, so that the work does not wait for other tasks that block a thread.
    private let executor = DispatchExecutor(label: "repeated-task")
    private let closed = Atomic<Bool>(false)

    package init(every interval: DispatchTimeInterval) {
        self.interval = interval
    }

    package var isClosed: Bool { closed.load(ordering: .relaxed) }

    /// Begins to repeat the work.
    ///
    /// - Parameters:
    ///   - delay: the time until the first run; the interval by default.
    ///   - work: the work to repeat. It must capture the owner of the task weakly, or else the owner stays alive until
    ///     the task is closed.
    package func start(after delay: DispatchTimeInterval? = nil, _ work: @escaping @Sendable () async -> Void) {
        DispatchQueue.global(qos: .userInitiated).asyncAfter(deadline: .now() + (delay ?? interval)) { [weak self] in
            guard let self, !isClosed else { return }
            Task(executorPreference: executor) { [weak self] in
                await work()
                self?.start(work)
            }
        }
    }

    /// Ends the repetition. Work in progress is completed.
    package func close() {
        closed.store(true, ordering: .relaxed)
    }
}
