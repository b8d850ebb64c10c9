internal import Synchronization

/// Balances connections over the event loops. The kernel distributes them at random, so a few long-lived ones would
/// often share one loop while another one is idle.
final class ConnectionBalance: Sendable {
    private let workers = Mutex<[WorkerReference]>([])
    /// The number of open connections over all loops.
    private let total = Atomic<Int>(0)
    private let isStopping = Atomic<Bool>(false)

    /// Sets the workers among which connections are distributed from now on.
    func begin(among workers: [WorkerReference]) {
        self.workers.withLock { $0 = workers }
    }

    /// Lets each loop keep the connections that it accepts. Called before any loop is told to stop, because a loop that
    /// has ended cannot take a connection.
    func stop() {
        isStopping.store(true, ordering: .sequentiallyConsistent)
    }

    /// Counts one more connection over all loops, unless there are `limit` connections already.
    ///
    /// - Returns: whether the connection was counted, so that it may be served.
    func countConnection(limit: Int) -> Bool {
        guard total.add(1, ordering: .relaxed).newValue > limit else { return true }
        total.subtract(1, ordering: .relaxed)
        return false
    }

    /// Subtracts a connection that a worker has closed from the counts.
    func remove(from worker: Worker) {
        total.subtract(1, ordering: .relaxed)
        worker.load.subtract(1, ordering: .relaxed)
    }

    /// Chooses the worker for a new connection and counts the connection there: the accepting worker, unless another
    /// one has so many fewer connections that waking its thread is worth it.
    ///
    /// - Returns: the other worker; `nil` for the accepting one.
    func chooseWorker(acceptedBy worker: Worker) -> WorkerReference? {
        if let other = lighterWorker(than: worker) {
            other.worker.load.add(1, ordering: .sequentiallyConsistent)
            // A loop ends only after `stop` and with a load of 0. Either the other loop sees this connection in its
            // load, or this check sees that the loops are stopping.
            if !isStopping.load(ordering: .sequentiallyConsistent) { return other }
            other.worker.load.subtract(1, ordering: .sequentiallyConsistent)
            // The other loop may be asleep, waiting for a load of 0.
            other.worker.loop.submit {}
        }
        worker.load.add(1, ordering: .relaxed)
        return nil
    }

    /// Returns the worker with the fewest connections if the given worker has over 1/16 more; `nil` otherwise. A
    /// smaller difference is not worth waking the thread of the other worker.
    private func lighterWorker(than worker: Worker) -> WorkerReference? {
        let lightest = workers.withLock { workers in
            workers.min { $0.worker.load.load(ordering: .relaxed) < $1.worker.load.load(ordering: .relaxed) }
        }
        guard let lightest, lightest.worker !== worker else { return nil }
        let least = lightest.worker.load.load(ordering: .relaxed)
        return worker.load.load(ordering: .relaxed) > least + least / 16 ? lightest : nil
    }
}
