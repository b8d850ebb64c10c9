import Dispatch
import Synchronization

/// Queues of jobs for the upstream, each with a thread and a connection of its own (a lane).
///
/// A lane performs its waiting jobs in batches, one request per batch. While a request is under way, further jobs
/// gather for the next one. Jobs with the same key share a lane and are performed in order.
final class Lanes<Job: Sendable>: Sendable {
    private struct State {
        var waiting: [Job] = []
        /// Whether a batch is scheduled on the lane's queue or being performed.
        var isScheduled = false
    }

    /// A queue with its connection to the upstream.
    private final class Lane: @unchecked Sendable {
        // Safe: the connection is used on the queue only.
        let queue: DispatchQueue
        let connection: UpstreamConnection
        let state = Mutex(State())

        init(_ label: String, _ connection: UpstreamConnection) {
            queue = DispatchQueue(label: label, qos: .userInitiated)
            self.connection = connection
        }
    }

    private let lanes: [Lane]
    /// The maximum number of jobs that wait in a lane.
    private let limit: Int
    /// The maximum number of jobs in a batch, and about the maximum of their size in bytes.
    private let batch: (jobs: Int, bytes: Int)
    /// Returns the size of a job in bytes.
    private let bytes: @Sendable (Job) -> Int
    private let perform: @Sendable ([Job], UpstreamConnection) -> Void

    /// - Parameters:
    ///   - label: the prefix of the queues' labels.
    ///   - count: the number of lanes, which is the maximum number of concurrent requests.
    ///   - limit: the maximum number of jobs that wait in a lane.
    ///   - batch: the maximum number of jobs in a batch, and about the maximum of their size in bytes: a batch ends
    ///     with the job that reaches it.
    ///   - bytes: returns the size of a job in bytes.
    ///   - perform: performs a batch; called on the lane's thread.
    init(
        _ label: String, count: Int, limit: Int, batch: (jobs: Int, bytes: Int), _ upstream: Upstream,
        bytes: @escaping @Sendable (Job) -> Int,
        perform: @escaping @Sendable ([Job], UpstreamConnection) -> Void
    ) {
        lanes = (0..<count).map { Lane("\(label)-\($0)", upstream.makeConnection()) }
        self.limit = limit
        self.batch = batch
        self.bytes = bytes
        self.perform = perform
    }

    /// Adds a job.
    ///
    /// - Parameter key: jobs with the same key are performed in order.
    /// - Returns: `false` if the lane is full; the job is not performed then.
    func add(_ job: Job, key: Int) -> Bool {
        let lane = lanes[Int(UInt(bitPattern: key) % UInt(lanes.count))]
        let (hasRoom, mustSchedule) = lane.state.withLock { state -> (Bool, Bool) in
            guard state.waiting.count < limit else { return (false, false) }
            state.waiting.append(job)
            let wasScheduled = state.isScheduled
            state.isScheduled = true
            return (true, !wasScheduled)
        }
        if mustSchedule { schedule(lane) }
        return hasRoom
    }

    /// Performs a batch on the lane's queue, and then further batches until no job waits.
    private func schedule(_ lane: Lane) {
        lane.queue.async { [self] in
            let jobs = lane.state.withLock { state in takeBatch(&state) }
            if !jobs.isEmpty { perform(jobs, lane.connection) }
            let isMoreWaiting = lane.state.withLock { state in
                state.isScheduled = !state.waiting.isEmpty
                return state.isScheduled
            }
            if isMoreWaiting { schedule(lane) }
        }
    }

    /// Removes and returns the jobs of the next batch.
    private func takeBatch(_ state: inout State) -> [Job] {
        var count = 0
        var size = 0
        while count < min(batch.jobs, state.waiting.count), size < batch.bytes {
            size += bytes(state.waiting[count])
            count += 1
        }
        defer { state.waiting.removeFirst(count) }
        return Array(state.waiting.prefix(count))
    }

    /// Blocks until the batches in progress are done.
    func wait() {
        for lane in lanes { lane.queue.sync {} }
    }
}

/// A counter for metrics. Any thread may use it.
final class Counter: Sendable {
    private let number = Atomic<UInt64>(0)

    var value: UInt64 { number.load(ordering: .relaxed) }

    func add(_ count: Int) {
        number.add(UInt64(count), ordering: .relaxed)
    }
}
