import Dispatch
import Storage
import Synchronization
import Tracing

/// Passes requests of clients on to the upstream unchanged, a few at a time. Used for requests that an edge cannot
/// serve itself, such as requests of admins.
public final class UpstreamPool: Sendable {
    /// A connection, which one thread at a time uses.
    private final class Slot: @unchecked Sendable {
        // Safe: a slot is taken out of the list of idle slots while it is used.
        let connection: UpstreamConnection

        init(_ connection: UpstreamConnection) {
            self.connection = connection
        }
    }

    private let upstream: Upstream
    /// The open connections that no request uses.
    private let idle = Mutex<[Slot]>([])
    private let queue = LimitedQueue(label: "edge-forward", limit: requests, qos: .userInitiated)
    private let responses = Counter()
    /// The maximum number of concurrent requests.
    private static let requests = 8
    /// The maximum number of requests that wait.
    private static let waiting = 1_000
    /// How long the upstream may send no data for a request with `takesLong`, in seconds.
    private static let longSeconds = 30

    init(_ upstream: Upstream) {
        self.upstream = upstream
    }

    /// The number of responses of the upstream.
    var forwarded: UInt64 { responses.value }

    /// Sends a request.
    ///
    /// A change is sent once only: if a connection breaks, it is not repeated on another one, so that it is not made
    /// twice.
    ///
    /// - Parameters:
    ///   - target: the path with the query.
    ///   - fields: header fields as `Name: value`.
    ///   - hasToken: whether the edge's token is sent.
    ///   - takesLong: whether the upstream may compute for up to 30 seconds, as for results of a large experiment.
    ///   - mostBytes: the maximum size of the response's body; a longer one fails.
    /// - Throws: ``UpstreamError/noResponse(_:)`` if the upstream is away; ``UpstreamError/overloaded`` if too many
    ///   requests wait; otherwise the error of the request.
    public func send(
        _ method: String, _ target: String, fields: [String], hasToken: Bool, takesLong: Bool, body: [UInt8]?,
        mostBytes: Int
    ) async throws(UpstreamError) -> UpstreamResponse {
        var request = UpstreamConnection.Request(path: target)
        request.method = method
        request.fields = fields
        request.hasToken = hasToken
        request.body = body
        request.idleSeconds = max(upstream.idleSeconds(wait: 0), takesLong ? Self.longSeconds : 0)
        request.isSentOnce = method != "GET" && method != "HEAD"
        request.mostBytes = mostBytes
        request.spans = Span.current.map { [$0] } ?? []
        let sent = request
        guard upstream.isUp else { throw .noResponse("it was away before") }
        let result = await queue.run(mostWaiting: Self.waiting) { self.perform(sent) }
        guard let result else { throw .overloaded }
        return try result.get()
    }

    /// Sends a request over an idle connection, or over a new one if there is none.
    private func perform(_ request: UpstreamConnection.Request) -> Result<UpstreamResponse, UpstreamError> {
        let slot = idle.withLock { $0.popLast() } ?? Slot(upstream.makePatientConnection())
        defer { idle.withLock { $0.append(slot) } }
        return Result { () throws(UpstreamError) in
            // The upstream may have been found to be away while the request waited.
            guard upstream.isUp else { throw .noResponse("it was away before") }
            // A failure does not mark the upstream as away: the response may just have taken too long. If the upstream
            // is away, the follower finds out.
            let response = try slot.connection.send(request)
            responses.add(1)
            return response
        }
    }

    /// Waits for the requests in progress.
    func wait() {
        queue.wait()
    }
}
