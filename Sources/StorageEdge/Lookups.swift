import Bucketing
import JSON
import Storage
import Tracing

/// Looks users up at the upstream, all waiting lookups in one request. Used while the copy is incomplete or older than
/// ``EdgeConfiguration/maxLag``.
final class Lookups: Sendable {
    /// A lookup that waits to be sent.
    private struct Job: Sendable {
        let userID: Identifier
        /// The span of the client request, for traces.
        let span: Span?
        let report: @Sendable (Result<MirroredUser, StorageError>) -> Void
    }

    private let lanes: Lanes<Job>
    /// The number of users that the upstream was asked for.
    let asked: Counter
    /// The maximum number of concurrent requests.
    private static let requests = 4
    /// The maximum number of users in a request, and about the maximum of their size in bytes.
    private static let batch = (jobs: 1_000, bytes: 256 << 10)

    init(_ upstream: Upstream) {
        let asked = Counter()
        self.asked = asked
        // An id takes more than its bytes in the request: quotes, a comma, perhaps escapes. 8 bytes are an estimate.
        lanes = Lanes(
            "edge-lookups", count: Self.requests, limit: upstream.configuration.waitingRequests / Self.requests,
            batch: Self.batch, upstream, bytes: { $0.userID.string.utf8.count + 8 }
        ) { jobs, connection in
            asked.add(jobs.count)
            Self.send(jobs, connection, upstream)
        }
    }

    /// Looks a user up.
    ///
    /// - Parameter report: called on any thread; with ``StorageError/unavailable(reason:)`` if the upstream does not
    ///   respond, and with ``StorageError/overloaded`` if too many lookups wait.
    func find(_ userID: Identifier, _ report: @escaping @Sendable (Result<MirroredUser, StorageError>) -> Void) {
        if !lanes.add(Job(userID: userID, span: Span.current, report: report), key: userID.hashValue) {
            report(.failure(.overloaded))
        }
    }

    /// Blocks until the requests in progress are done.
    func wait() { lanes.wait() }

    /// Looks up the users of all jobs in one request, and reports the results.
    private static func send(_ jobs: [Job], _ connection: UpstreamConnection, _ upstream: Upstream) {
        var found: [Identifier: Result<MirroredUser, StorageError>] = [:]
        var missing = StorageError.unavailable(reason: "the upstream says nothing of the user")
        do throws(UpstreamError) {
            // The upstream may have been found to be away while these jobs waited.
            guard upstream.isUp else { throw .noResponse("it was away before") }
            found = try request(Array(Set(jobs.map(\.userID))), jobs.compactMap(\.span), connection, upstream)
        } catch {
            upstream.didFail(error)
            missing = .unavailable(reason: "\(error)")
        }
        for job in jobs { job.report(found[job.userID] ?? .failure(missing)) }
    }

    /// Requests users.
    ///
    /// - Returns: each user, or the damage of the upstream's records of the user.
    private static func request(
        _ userIDs: [Identifier], _ spans: [Span], _ connection: UpstreamConnection, _ upstream: Upstream
    ) throws(UpstreamError) -> [Identifier: Result<MirroredUser, StorageError>] {
        var writer = JSONWriter(capacity: 32 * userIDs.count)
        writer.beginObject()
        writer.member("user_ids", userIDs.map(\.string))
        writer.endObject()
        var body = try connection.expect(
            .init(
                method: "POST", path: "/edge/v1/lookup", fields: ["Content-Type: application/json"],
                body: writer.finish(), seconds: upstream.configuration.timeout, spans: spans)
        ).body
        var found: [Identifier: Result<MirroredUser, StorageError>] = [:]
        _ = try body.takeLines { line throws(UpstreamError) in
            switch try UserLine(line) {
            case .user(let user): found[user.userID] = .success(user)
            case .damaged(let userID, let reason): found[userID] = .failure(.damaged(reason: reason))
            case .end: break
            }
            return true
        }
        return found
    }
}
