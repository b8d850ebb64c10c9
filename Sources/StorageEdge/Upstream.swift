import Dispatch
import Glibc
import Synchronization

/// The state of the upstream as all threads of the edge see it: whether it responds, and why not.
final class Upstream: Sendable {
    let configuration: EdgeConfiguration
    let identity: UpstreamIdentity
    let cancellation = Cancellation()
    private let isAway = Atomic<Bool>(false)
    /// Why the upstream was last found to be away.
    private let reason = Mutex<String?>(nil)
    /// When it last responded, in monotonic nanoseconds; 0 for never.
    private let lastContact = Atomic<UInt64>(0)
    /// When it was last found to be away, in monotonic nanoseconds.
    private let lastFailure = Atomic<UInt64>(0)
    /// The minimum time in seconds for which an upstream must have waited when it was asked to. A faster response
    /// without changes is followed by a pause, to prevent a busy loop.
    static let shortestWait = 0.5
    /// How long a request in progress may still receive data after the upstream was found to be away, in seconds.
    private static let patience = 5.0
    /// A pipe that is readable once the edge closes.
    private let ending: (readEnd: Int32, writeEnd: Int32)

    init(_ configuration: EdgeConfiguration, _ identity: UpstreamIdentity) {
        self.configuration = configuration
        self.identity = identity
        var ends: [Int32] = [-1, -1]
        pipe(&ends)
        for descriptor in ends { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
        ending = (ends[0], ends[1])
    }

    deinit {
        Glibc.close(ending.readEnd)
        Glibc.close(ending.writeEnd)
    }

    /// Whether requests are sent. After a request has failed, only the follower sends requests until one succeeds. An
    /// absent upstream thus costs one timeout.
    var isUp: Bool { !isAway.load(ordering: .relaxed) }

    /// Why the upstream is away; `nil` if it is not.
    var failure: String? { isUp ? nil : reason.withLock { $0 } }

    /// The seconds since the upstream last responded; `nil` if it never has.
    var secondsSinceContact: Double? {
        let last = lastContact.load(ordering: .relaxed)
        guard last > 0 else { return nil }
        return Double(DispatchTime.now().uptimeNanoseconds &- last) / 1e9
    }

    /// The idle timeout of a request in seconds.
    ///
    /// - Parameter wait: how long the upstream may wait before it responds, in seconds.
    func idleSeconds(wait: Int) -> Int { wait + max(1, Int(configuration.timeout.rounded(.up))) }

    func makeConnection() -> UpstreamConnection {
        UpstreamConnection(configuration, identity, cancellation)
    }

    /// Creates a connection for requests that may take long. They end early if the upstream is found to be away
    /// meanwhile.
    func makePatientConnection() -> UpstreamConnection {
        UpstreamConnection(configuration, identity, cancellation, isInVain: isInVain)
    }

    /// Whether a request in progress should give up: the upstream was found to be away after the last data had arrived.
    ///
    /// - Parameter receivedAt: when data last arrived, in monotonic nanoseconds.
    private func isInVain(_ receivedAt: UInt64) -> Bool {
        let failure = lastFailure.load(ordering: .relaxed)
        guard failure > receivedAt else { return false }
        return Double(DispatchTime.now().uptimeNanoseconds &- failure) / 1e9 > Self.patience
    }

    /// Records that the follower has received a response.
    func didRespond() {
        lastContact.store(DispatchTime.now().uptimeNanoseconds, ordering: .relaxed)
        guard isAway.exchange(false, ordering: .relaxed) else { return }
        configuration.report(.upstreamResponds)
    }

    func didFail(_ error: UpstreamError) {
        guard !cancellation.isCancelled, error.meansAway else { return }
        reason.withLock { $0 = "\(error)" }
        guard !isAway.exchange(true, ordering: .relaxed) else { return }
        lastFailure.store(DispatchTime.now().uptimeNanoseconds, ordering: .relaxed)
        configuration.report(.upstreamIsAway(reason: "\(error)"))
    }

    /// Waits, unless the edge is closing. It polls a pipe, because a Dispatch semaphore waits by the wall clock: if
    /// that were set back by an hour, the pause would last an hour.
    func pause(seconds: Double) {
        var descriptor = pollfd(fd: ending.readEnd, events: Int16(POLLIN), revents: 0)
        poll(&descriptor, 1, Int32(seconds * 1_000))
    }

    /// Repeats a step until the edge closes.
    ///
    /// - Parameter step: returns whether it has made progress, so that the next step follows at once. Otherwise, and
    ///   after an error, a pause follows, each longer than the last, so that no response of the upstream can cause a
    ///   busy loop.
    func follow(_ step: (UpstreamConnection) throws -> Bool) {
        let connection = makeConnection()
        var backoff = Backoff()
        while !cancellation.isCancelled {
            do {
                if try step(connection) {
                    backoff.reset()
                    continue
                }
            } catch {
                if let error = error as? UpstreamError { didFail(error) }
            }
            pause(seconds: backoff.next())
        }
    }

    /// Ends all requests and pauses.
    func close() {
        cancellation.cancel()
        var byte: UInt8 = 0
        _ = write(ending.writeEnd, &byte, 1)
    }
}

extension UpstreamError {
    /// Whether any other request would fail as well.
    var meansAway: Bool {
        switch self {
        case .noResponse, .late, .foreign: true
        case .refused(let status, _): status >= 500 || [401, 403, 404].contains(status)
        case .malformed, .damaged, .tooLarge, .overloaded, .closing: false
        }
    }
}

extension UpstreamError {
    /// Whether the upstream may have performed the request.
    var isUnknown: Bool { if case .late = self { true } else { false } }
}

/// The pause before the next attempt. It grows with each attempt and is random, so that many edges do not retry at the
/// same time.
struct Backoff {
    private static let (shortest, longest) = (0.1, 2.0)
    private var seconds = shortest

    mutating func next() -> Double {
        defer { seconds = min(seconds * 2, Self.longest) }
        return seconds * .random(in: 0.5...1)
    }

    mutating func reset() {
        seconds = Self.shortest
    }
}

/// Jobs that wait for the upstream, which are performed in batches. Jobs with the same key share a lane and are
/// performed in order.
final class Lanes<Job: Sendable>: Sendable {
    private struct State {
        var waiting: [Job] = []
        var isScheduled = false
    }

    /// A thread with its connection to the upstream.
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
    private let limit: Int
    private let batch: (jobs: Int, bytes: Int)
    private let bytes: @Sendable (Job) -> Int
    private let perform: @Sendable ([Job], UpstreamConnection) -> Void

    /// - Parameters:
    ///   - limit: the maximum number of jobs that wait in a lane.
    ///   - batch: the maximum number of jobs in a batch, and about the maximum of their size in bytes.
    ///   - perform: called on the lane's thread.
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

    /// - Parameter key: jobs with the same key are performed in order.
    /// - Returns: `false` if the lane is full.
    func add(_ job: Job, key: Int) -> Bool {
        let lane = lanes[Int(UInt(bitPattern: key) % UInt(lanes.count))]
        let (hasRoom, isFirst) = lane.state.withLock { state -> (Bool, Bool) in
            guard state.waiting.count < limit else { return (false, false) }
            state.waiting.append(job)
            defer { state.isScheduled = true }
            return (true, !state.isScheduled)
        }
        if isFirst { schedule(lane) }
        return hasRoom
    }

    private func schedule(_ lane: Lane) {
        lane.queue.async { [self] in
            let jobs = lane.state.withLock { state in
                var (count, size) = (0, 0)
                while count < min(batch.jobs, state.waiting.count), size < batch.bytes {
                    size += bytes(state.waiting[count])
                    count += 1
                }
                defer { state.waiting.removeFirst(count) }
                return Array(state.waiting.prefix(count))
            }
            if !jobs.isEmpty { perform(jobs, lane.connection) }
            let isMoreWaiting = lane.state.withLock { state in
                state.isScheduled = !state.waiting.isEmpty
                return state.isScheduled
            }
            if isMoreWaiting { schedule(lane) }
        }
    }

    /// Blocks until all jobs that were added are done.
    func wait() {
        for lane in lanes { lane.queue.sync {} }
    }
}

/// Counts for metrics, on any thread.
final class Counter: Sendable {
    private let number = Atomic<UInt64>(0)

    var value: UInt64 { number.load(ordering: .relaxed) }

    func add(_ count: Int) {
        number.add(UInt64(count), ordering: .relaxed)
    }
}
