internal import Synchronization

/// How many connections there are, and on which event loop. A few that are kept open for long would otherwise often
/// meet on one loop, while another has nothing to do.
final class ConnectionBalance: Sendable {
    private let workers = Mutex<[WorkerReference]>([])
    private let total = Atomic<Int>(0)

    /// - Parameter workers: those that may be given connections from now on.
    func begin(among workers: [WorkerReference]) {
        self.workers.withLock { $0 = workers }
    }

    /// Counts one more connection, unless that were more than the limit of all loops together.
    func admits(atMost limit: Int) -> Bool {
        guard total.add(1, ordering: .relaxed).newValue > limit else { return true }
        total.subtract(1, ordering: .relaxed)
        return false
    }

    func remove(from worker: Worker) {
        total.subtract(1, ordering: .relaxed)
        worker.load.subtract(1, ordering: .releasing)
    }

    /// The worker that has the fewest, if that is so many fewer that it is worth to wake another thread.
    func lighter(than worker: Worker) -> WorkerReference? {
        let lightest = workers.withLock { workers in
            workers.min { $0.worker.load.load(ordering: .relaxed) < $1.worker.load.load(ordering: .relaxed) }
        }
        guard let lightest, lightest.worker !== worker else { return nil }
        let least = lightest.worker.load.load(ordering: .relaxed)
        return worker.load.load(ordering: .relaxed) > least + least / 16 ? lightest : nil
    }
}
