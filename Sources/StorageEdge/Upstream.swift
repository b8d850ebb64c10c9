import Dispatch
import Glibc
import Synchronization

/// The state of the upstream, which all threads of the edge share: whether the upstream responds, and why not.
///
/// A failed request (``didFail(_:)``) marks the upstream as away. From then on only the ``Follower`` and the
/// ``DefinitionsFollower`` send requests, with pauses. All other requests fail at once, so that an absent upstream does
/// not cost each client a time-out. The next response that the ``Follower`` gets (``didRespond()``) ends this state.
final class Upstream: Sendable {
    let configuration: EdgeConfiguration
    let identity: UpstreamIdentity
    let cancellation = Cancellation()
    private let isAway = Atomic<Bool>(false)
    /// Why the upstream was last found to be away.
    private let reason = Mutex<String?>(nil)
    /// When the upstream last responded to the follower, in monotonic nanoseconds; 0 for never.
    private let lastContact = Atomic<UInt64>(0)
    /// When the upstream was last found to be away, in monotonic nanoseconds; 0 for never.
    private let lastFailure = Atomic<UInt64>(0)
    /// The shortest time in seconds that counts as a long poll. If an upstream responds without changes in less time,
    /// it does not hold requests, and a pause before the next request prevents a busy loop.
    static let shortestWait = 0.5
    /// How long a request of ``makePatientConnection()`` still waits for data after the upstream was found to be away,
    /// in seconds.
    private static let patience = 5.0
    /// A pipe that becomes readable when the edge closes, which ends pauses.
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

    /// Whether the upstream is not marked as away, so that requests may be sent. `true` before the first request.
    var isUp: Bool { !isAway.load(ordering: .relaxed) }

    /// Why the upstream is away; `nil` if it is not.
    var failure: String? { isUp ? nil : reason.withLock { $0 } }

    /// The seconds since the upstream last responded to the follower; `nil` if it never has.
    var secondsSinceContact: Double? {
        let last = lastContact.load(ordering: .relaxed)
        guard last > 0 else { return nil }
        return Double(DispatchTime.now().uptimeNanoseconds &- last) / 1e9
    }

    /// Returns how long a request may receive no data, in seconds.
    ///
    /// - Parameter wait: how long the upstream may hold the request before it responds, in seconds.
    func idleSeconds(wait: Int) -> Int { wait + max(1, Int(configuration.timeout.rounded(.up))) }

    func makeConnection() -> UpstreamConnection {
        UpstreamConnection(configuration, identity, cancellation)
    }

    /// Creates a connection for requests that may take long. A request ends early if the upstream is found to be away
    /// meanwhile.
    func makePatientConnection() -> UpstreamConnection {
        UpstreamConnection(configuration, identity, cancellation, shouldGiveUp: shouldGiveUp)
    }

    /// Whether a request in progress should give up: no data has arrived since the upstream was found to be away, and
    /// ``patience`` has passed.
    ///
    /// - Parameter receivedAt: when data last arrived, in monotonic nanoseconds.
    private func shouldGiveUp(_ receivedAt: UInt64) -> Bool {
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

    /// Records that a request has failed. Errors that concern only this request are ignored.
    func didFail(_ error: UpstreamError) {
        guard !cancellation.isCancelled, error.meansAway else { return }
        reason.withLock { $0 = "\(error)" }
        guard !isAway.exchange(true, ordering: .relaxed) else { return }
        lastFailure.store(DispatchTime.now().uptimeNanoseconds, ordering: .relaxed)
        configuration.report(.upstreamIsAway(reason: "\(error)"))
    }

    /// Blocks for some seconds, or until the edge closes.
    ///
    /// Polls a pipe: a Dispatch semaphore waits by the wall clock, and if this clock were set back by an hour, the
    /// pause would last an hour longer.
    func pause(seconds: Double) {
        var descriptor = pollfd(fd: ending.readEnd, events: Int16(POLLIN), revents: 0)
        poll(&descriptor, 1, Int32(seconds * 1_000))
    }

    /// Repeats a step until the edge closes.
    ///
    /// - Parameter step: returns whether it has made progress. After progress the next step follows at once. Without
    ///   progress, and after an error, a pause follows, so that no response of the upstream can cause a busy loop. The
    ///   pauses grow as long as there is no progress (``Backoff``).
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

/// A flag that ends requests and pauses.
final class Cancellation: Sendable {
    private let flag = Atomic<Bool>(false)

    var isCancelled: Bool { flag.load(ordering: .relaxed) }

    func cancel() {
        flag.store(true, ordering: .relaxed)
    }
}

/// The pause before the next attempt. It doubles with each attempt, and half of it is random, so that many edges do not
/// retry at the same time.
struct Backoff {
    /// The first pause, in seconds.
    private static let shortest = 0.1
    /// The longest pause, in seconds.
    private static let longest = 2.0
    /// The upper bound of the next pause, in seconds.
    private var seconds = shortest

    /// Returns the next pause in seconds.
    mutating func next() -> Double {
        defer { seconds = min(seconds * 2, Self.longest) }
        return seconds * .random(in: 0.5...1)
    }

    /// Makes the next pause the shortest, after a success.
    mutating func reset() {
        seconds = Self.shortest
    }
}
