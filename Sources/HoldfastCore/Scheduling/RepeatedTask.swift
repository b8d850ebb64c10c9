package import Dispatch
import Storage
import Synchronization

/// Work that is repeated in the background until it is closed. Each repetition begins an interval after the one before has
/// ended.
package final class RepeatedTask: Sendable {
    private let interval: DispatchTimeInterval
    /// Its own, so that it waits for nobody who blocks a thread.
    private let executor = DispatchExecutor(label: "repeated-task")
    private let closed = Atomic<Bool>(false)

    package init(every interval: DispatchTimeInterval) {
        self.interval = interval
    }

    package var isClosed: Bool { closed.load(ordering: .relaxed) }

    /// - Parameters:
    ///   - delay: the time until the first run; the interval by default.
    ///   - work: does not keep the owner of the task alive.
    package func start(after delay: DispatchTimeInterval? = nil, _ work: @escaping @Sendable () async -> Void) {
        DispatchQueue.global(qos: .userInitiated).asyncAfter(deadline: .now() + (delay ?? interval)) { [weak self] in
            guard let self, !isClosed else { return }
            Task(executorPreference: executor) { [weak self] in
                await work()
                self?.start(work)
            }
        }
    }

    package func close() {
        closed.store(true, ordering: .relaxed)
    }
}
