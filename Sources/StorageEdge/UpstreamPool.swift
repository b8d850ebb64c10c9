import Dispatch
import Storage
import Synchronization
import Tracing

/// Passes requests of clients on to the upstream, a few at a time.
public final class UpstreamPool: Sendable {
    private struct State {
        var idle: [Slot] = []
        var running = 0
        var waiting: [Job] = []
    }

    private struct Job: Sendable {
        let request: UpstreamConnection.Request
        let report: @Sendable (Result<UpstreamResponse, UpstreamError>) -> Void
    }

    /// A connection, which one thread at a time uses.
    private final class Slot: @unchecked Sendable {
        // Safe: it is taken out of the list of idle ones while it is used.
        let connection: UpstreamConnection

        init(_ connection: UpstreamConnection) {
            self.connection = connection
        }
    }

    private let upstream: Upstream
    private let state = Mutex(State())
    private let queue = DispatchQueue(label: "edge-forward", qos: .userInitiated, attributes: .concurrent)
    private let responses = Counter()
    /// The number of requests at the same time, and of those that wait.
    private static let (requests, waiting) = (8, 1_000)
    /// For how long the upstream may send nothing of a response that takes long, in seconds.
    private static let longSeconds = 30

    init(_ upstream: Upstream) {
        self.upstream = upstream
    }

    var forwarded: UInt64 { responses.value }

    /// Sends a request.
    ///
    /// - Parameters:
    ///   - target: the path with the query.
    ///   - fields: header fields as `Name: value`.
    ///   - hasToken: whether the edge's token is sent.
    ///   - takesLong: whether the upstream may take its time, as for results of a large experiment.
    ///   - mostBytes: the maximum size of the response's body.
    /// - Throws: ``UpstreamError``, also if too many requests wait.
    public func send(
        _ method: String, _ target: String, fields: [String], hasToken: Bool, takesLong: Bool, body: [UInt8]?,
        mostBytes: Int
    ) async throws(UpstreamError) -> UpstreamResponse {
        var request = UpstreamConnection.Request(path: target)
        request.method = method
        (request.fields, request.hasToken) = (fields, hasToken)
        request.body = body
        request.idleSeconds = max(upstream.idleSeconds(wait: 0), takesLong ? Self.longSeconds : 0)
        // Not every change may be made twice.
        request.isSentOnce = method != "GET" && method != "HEAD"
        request.mostBytes = mostBytes
        request.spans = Span.current.map { [$0] } ?? []
        let sent = request
        let result: Result<UpstreamResponse, UpstreamError> = await settled { [self] completion in
            add(Job(request: sent, report: completion))
        }
        return try result.get()
    }

    private func add(_ job: Job) {
        guard upstream.isUp else { return job.report(.failure(.noResponse("it was away before"))) }
        enum Step {
            case start(Slot?)
            case wait, refuse
        }
        let step = state.withLock { state -> Step in
            guard state.running >= Self.requests else {
                state.running += 1
                return .start(state.idle.popLast())
            }
            guard state.waiting.count < Self.waiting else { return .refuse }
            state.waiting.append(job)
            return .wait
        }
        switch step {
        case .start(let slot):
            queue.async { [self] in run(job, slot ?? Slot(upstream.makePatientConnection())) }
        case .wait: break
        case .refuse: job.report(.failure(.overloaded))
        }
    }

    private func run(_ first: Job, _ slot: Slot) {
        var next: Job? = first
        while let job = next {
            do throws(UpstreamError) {
                // Perhaps it was found to be away while the request waited.
                guard upstream.isUp else { throw .noResponse("it was away before") }
                let response = try slot.connection.send(job.request)
                responses.add(1)
                job.report(.success(response))
            } catch {
                // A response that takes too long is no sign that the upstream is away; the follower finds out.
                job.report(.failure(error))
            }
            next = state.withLock { state in
                guard state.waiting.isEmpty else { return state.waiting.removeFirst() }
                state.running -= 1
                state.idle.append(slot)
                return nil
            }
        }
    }

    /// Waits for the requests under way.
    func wait() {
        queue.sync(flags: .barrier) {}
    }
}
