import Dispatch
import Glibc
import Synchronization

/// What is known of the upstream, for all threads.
final class Upstream: Sendable {
    let configuration: EdgeConfiguration
    let identity: UpstreamIdentity
    let cancellation = Cancellation()
    private let isAway = Atomic<Bool>(false)
    /// Why it was away last.
    private let reason = Mutex<String?>(nil)
    /// When it last responded, in monotonic nanoseconds; 0 for never.
    private let lastContact = Atomic<UInt64>(0)
    /// When it was last found to be away, in monotonic nanoseconds.
    private let lastFailure = Atomic<UInt64>(0)
    /// How long an upstream that was asked to wait has waited at least, in seconds; a response that is faster, and brings
    /// nothing, is followed by a pause.
    static let shortestWait = 0.5
    /// For how long a request that was under way then may still get something, in seconds.
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

    /// Whether requests are sent. One that fails ends that, until the follower has had a response again: so what an
    /// absent upstream costs is one timeout.
    var isUp: Bool { !isAway.load(ordering: .relaxed) }

    /// Why it is away; `nil` if it is not.
    var failure: String? { isUp ? nil : reason.withLock { $0 } }

    /// The seconds since it last responded; `nil` if it never has.
    var secondsSinceContact: Double? {
        let last = lastContact.load(ordering: .relaxed)
        guard last > 0 else { return nil }
        return Double(DispatchTime.now().uptimeNanoseconds &- last) / 1e9
    }

    /// For how long nothing may arrive from an upstream that may wait for this long before it responds, in seconds.
    func idleSeconds(wait: Int) -> Int { wait + max(1, Int(configuration.timeout.rounded(.up))) }

    func makeConnection() -> UpstreamConnection {
        UpstreamConnection(configuration, identity, cancellation)
    }

    /// Makes a connection for requests that may take long. They end early if the upstream, or the way to it, was found to
    /// fail meanwhile.
    func makePatientConnection() -> UpstreamConnection {
        UpstreamConnection(configuration, identity, cancellation, isInVain: isInVain)
    }

    /// - Parameter receivedAt: when something arrived last, in monotonic nanoseconds.
    private func isInVain(_ receivedAt: UInt64) -> Bool {
        let failure = lastFailure.load(ordering: .relaxed)
        guard failure > receivedAt else { return false }
        return Double(DispatchTime.now().uptimeNanoseconds &- failure) / 1e9 > Self.patience
    }

    /// Notes a response of the follower.
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

    /// Waits, unless the edge is closing. Not with a semaphore of Dispatch, which waits by the wall clock: if that was set
    /// back by an hour, the pause would last an hour.
    func pause(seconds: Double) {
        var descriptor = pollfd(fd: ending.readEnd, events: Int16(POLLIN), revents: 0)
        poll(&descriptor, 1, Int32(seconds * 1_000))
    }

    /// Takes step after step until the edge closes.
    ///
    /// - Parameter step: says whether it has got further, so that the next follows at once; otherwise, and after an error, a
    ///   pause follows, longer each time: whatever the upstream responds, nobody asks it without a pause.
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

    /// Ends all exchanges and pauses.
    func close() {
        cancellation.cancel()
        var byte: UInt8 = 0
        _ = write(ending.writeEnd, &byte, 1)
    }
}

extension UpstreamError {
    /// Whether nothing can be had of the upstream at present, whatever it is asked for.
    var meansAway: Bool {
        switch self {
        case .noResponse, .late, .foreign: true
        case .refused(let status, _): status >= 500 || [401, 403, 404].contains(status)
        case .malformed, .damaged, .tooLarge, .overloaded, .closing: false
        }
    }
}

extension UpstreamError {
    /// Whether the upstream may have done what it was asked for.
    var isUnknown: Bool { if case .late = self { true } else { false } }
}

/// How long to wait before the next attempt: longer after each, and at random, so that the edges of a host do not come all
/// at once.
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

/// Work that waits for the upstream, sent many at once. What belongs together is in one lane, and done in order.
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
    ///   - batch: the maximum number that are performed at once, and about the maximum of their bytes.
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

    /// - Parameter key: jobs of one key are performed in order.
    /// - Returns: whether there is room.
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

    /// Waits for everything that was added.
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
