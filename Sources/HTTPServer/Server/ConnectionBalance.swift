internal import Synchronization

/// How many connections there are, and on which event loop. A few that are kept open for long would otherwise often
/// meet on one loop, while another has nothing to do.
final class ConnectionBalance: Sendable {
    private let workers = Mutex<[WorkerReference]>([])
    private let total = Atomic<Int>(0)
    private let isStopping = Atomic<Bool>(false)

    /// - Parameter workers: those that may be given connections from now on.
    func begin(among workers: [WorkerReference]) {
        self.workers.withLock { $0 = workers }
    }

    /// From now on each loop keeps what it accepts, as others may have ended. Called before the first is told to.
    func stop() {
        isStopping.store(true, ordering: .sequentiallyConsistent)
    }

    /// Counts one more connection, unless that were more than the limit of all loops together.
    func admits(atMost limit: Int) -> Bool {
        guard total.add(1, ordering: .relaxed).newValue > limit else { return true }
        total.subtract(1, ordering: .relaxed)
        return false
    }

    func remove(from worker: Worker) {
        total.subtract(1, ordering: .relaxed)
        worker.load.subtract(1, ordering: .relaxed)
    }

    /// Chooses the worker that is to have one connection more, and counts it there: the one that accepted it, or the
    /// one that has the fewest, if that is so many fewer that it is worth to wake another thread.
    ///
    /// - Returns: `nil`: the worker itself.
    func choose(from worker: Worker) -> WorkerReference? {
        if let lighter = lighter(than: worker) {
            lighter.worker.load.add(1, ordering: .sequentiallyConsistent)
            // A loop ends when it was told to and counts none: it has counted this one, or it is stopping by now.
            if !isStopping.load(ordering: .sequentiallyConsistent) { return lighter }
            lighter.worker.load.subtract(1, ordering: .sequentiallyConsistent)
            lighter.worker.loop.submit {}
        }
        worker.load.add(1, ordering: .relaxed)
        return nil
    }

    private func lighter(than worker: Worker) -> WorkerReference? {
        let lightest = workers.withLock { workers in
            workers.min { $0.worker.load.load(ordering: .relaxed) < $1.worker.load.load(ordering: .relaxed) }
        }
        guard let lightest, lightest.worker !== worker else { return nil }
        let least = lightest.worker.load.load(ordering: .relaxed)
        return worker.load.load(ordering: .relaxed) > least + least / 16 ? lightest : nil
    }
}
