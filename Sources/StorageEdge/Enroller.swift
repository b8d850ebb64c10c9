import Bucketing
import Dispatch
import JSON
import Storage
import Tracing

/// Sends changes of profiles to the upstream, which makes them. A change is an enrollment that the edge has decided, or
/// a save by an app server.
///
/// All waiting changes go in one request. The response has their results, and the lines of the upstream's feed up to
/// these changes. The edge applies the lines to the copy before it reports the results, so one exchange both enrolls a
/// user and updates the copy.
///
/// ```
/// submit → Lanes → Exchange.perform:  meetGeneration → request → updateCopy → report
/// ```
final class Enroller: Sendable {
    /// A change that waits to be sent.
    private struct Job: Sendable {
        let change: ProfileChange
        /// The generation of the definitions with which the decision was made; `nil` for a save, which needs no
        /// definitions. 0 means that the generation is unknown. No feed has the epoch 0, so such a decision is stale.
        let generation: Int64?
        /// The span of the client request, for traces.
        let span: Span?
        let report: @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    }

    private let upstream: Upstream
    private let applier: FeedApplier
    private let lanes: Lanes<Job>
    /// The number of changes that the upstream has accepted or refused.
    let decided: Counter
    /// The number of changes that have failed, because the request failed or the upstream was away.
    let offline: Counter
    /// The maximum number of concurrent requests.
    private static let requests = 4
    /// The maximum number of changes in a request, and about the maximum of their size in bytes. Both are below the
    /// limits of servers.
    private static let batch = (jobs: 1_024, bytes: 600 << 10)

    init(_ upstream: Upstream, _ applier: FeedApplier, _ definitions: DefinitionsFollower) {
        self.upstream = upstream
        self.applier = applier
        let exchange = Exchange(upstream: upstream, applier: applier, definitions: definitions)
        let decided = Counter()
        let offline = Counter()
        self.decided = decided
        self.offline = offline
        lanes = Lanes(
            "edge-changes", count: Self.requests, limit: upstream.configuration.waitingRequests / Self.requests,
            batch: Self.batch, upstream, bytes: { $0.change.waitingBytes }
        ) { jobs, connection in
            let isDecided = exchange.perform(jobs, connection)
            (isDecided ? decided : offline).add(jobs.count)
        }
    }

    /// Sends a change, or fails it at once if the upstream is away.
    ///
    /// - Parameter report: called on any thread.
    func submit(
        _ change: ProfileChange, _ report: @escaping @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    ) {
        guard change.condition == nil, change.operation.isPassedOn else {
            return report(.failure(.unavailable(reason: "only the upstream can make this change")))
        }
        guard upstream.isUp else {
            offline.add(1)
            return report(.failure(upstream.refusal(of: change)))
        }
        let generation = change.isDecision ? applier.decidingGeneration ?? 0 : nil
        let hasRoom = lanes.add(
            Job(change: change, generation: generation, span: Span.current, report: report),
            // Changes of one user stay in order.
            key: change.userID.hashValue)
        if !hasRoom { report(.failure(.overloaded)) }
    }

    /// Blocks until all added changes are decided or have failed.
    func wait() { lanes.wait() }

    /// The results of the upstream for a request, and the lines of the feed up to them.
    fileprivate struct Response {
        var results: [Result<ProfileChangeResult, StorageError>]
        /// The lines; `nil` if the copy follows no feed at present.
        var lines: FeedBatch?
        /// The position in the feed after the changes.
        var reached: FeedCursor?
        /// Whether the response lacks some of the lines up to ``reached``, because there are too many.
        var hasMore = false
        /// When the request was sent, in monotonic nanoseconds.
        let askedAt: UInt64
    }

    // MARK: Requests

    /// Sends the changes of a batch of jobs. Used on the threads of the lanes.
    private struct Exchange: Sendable {
        let upstream: Upstream
        let applier: FeedApplier
        let definitions: DefinitionsFollower

        /// Sends changes in one request, applies the lines of the response, and reports the results.
        ///
        /// - Returns: whether the upstream has decided the changes.
        func perform(_ batch: [Job], _ connection: UpstreamConnection) -> Bool {
            var jobs = batch
            do {
                // The upstream may have been found to be away while these jobs waited.
                guard upstream.isUp else { throw UpstreamError.noResponse("it was away before") }
                try meetGeneration(of: &jobs, connection)
                guard let response = try respond(to: &jobs, connection) else { return true }
                updateCopy(with: response, connection)
                for (job, result) in zip(jobs, response.results) { job.report(result) }
                return true
            } catch {
                if let error = error as? UpstreamError { upstream.didFail(error) }
                for job in jobs { job.report(.failure(upstream.refusal(of: job.change, error))) }
                return false
            }
        }

        /// Makes the copy follow the upstream's generation if there are decisions to send.
        ///
        /// Decisions that were made with definitions of another generation are removed from the jobs, and fail as
        /// stale, so that their callers decide again.
        private func meetGeneration(of jobs: inout [Job], _ connection: UpstreamConnection) throws {
            let hasDecisions = jobs.contains { $0.generation != nil }
            if hasDecisions, applier.decidingGeneration == nil {
                _ = try applier.beginCopy(connection, upstream)
                try definitions.catchUp(connection)
            }
            let present = applier.decidingGeneration
            func isStale(_ job: Job) -> Bool { job.generation != nil && job.generation != present }
            for job in jobs where isStale(job) { job.report(.failure(.staleDatafile)) }
            jobs.removeAll(where: isStale)
        }

        /// Sends the jobs. If the upstream has another generation than the copy (410), it has changed nothing; the copy
        /// then begins anew, and the jobs are sent a second time.
        ///
        /// - Returns: `nil` if no job is left to send.
        private func respond(to jobs: inout [Job], _ connection: UpstreamConnection) throws -> Response? {
            guard !jobs.isEmpty else { return nil }
            do throws(UpstreamError) {
                return try request(jobs, connection)
            } catch .refused(410, let detail) {
                applier.forget(applier.generation, detail)
            }
            try meetGeneration(of: &jobs, connection)
            return jobs.isEmpty ? nil : try request(jobs, connection)
        }

        /// Sends the jobs in one request.
        private func request(
            _ jobs: [Job], _ connection: UpstreamConnection
        ) throws(UpstreamError) -> Response {
            let changes = jobs.map(\.change)
            let position = applier.position
            let askedAt = DispatchTime.now().uptimeNanoseconds
            let body = try connection.expect(
                .init(
                    method: "POST", path: "/edge/v1/changes", fields: ["Content-Type: application/json"],
                    body: ChangeMessages.encode(changes, after: position, applier.generation),
                    seconds: upstream.configuration.timeout, spans: jobs.compactMap(\.span))
            ).body
            return try Response(body, of: changes, hasLines: position != nil, askedAt: askedAt)
        }

        /// Applies the lines of a response to the copy, and further lines until the copy has all changes of the
        /// response. Reads new definitions if decisions were made with old ones.
        ///
        /// Errors of the copy are not thrown, because the upstream has decided and the results must be reported. While
        /// the copy cannot be written, lookups ask the upstream as well.
        private func updateCopy(with response: Response, _ connection: UpstreamConnection) {
            do {
                if let lines = response.lines {
                    try applier.apply(lines, askedAt: response.askedAt)
                    if response.hasMore { try applier.catchUp(to: response.reached, connection, upstream) }
                }
                if response.results.contains(where: \.isOutdated) { try definitions.catchUp(connection) }
            } catch FeedApplier.Failure.needsCopy(let reason) {
                applier.forget(applier.generation, reason)
            } catch {
                // The lines are read again with the next batch of the feed.
            }
        }
    }
}

extension Enroller.Response {
    /// Decodes a response of `/edge/v1/changes`: a line with the results, and lines of the feed.
    ///
    /// - Parameter hasLines: whether the request has asked for lines.
    fileprivate init(
        _ body: [UInt8], of changes: [ProfileChange], hasLines: Bool, askedAt: UInt64
    ) throws(UpstreamError) {
        var rest = body
        var first: Self?
        _ = try rest.takeLines { line throws(UpstreamError) in
            let object = (try? JSONParser().parse(line))?.object
            first = Self(
                results: try ChangeMessages.results(object, of: changes),
                reached: object?["position"]?.string.flatMap { FeedCursor($0) },
                hasMore: object?["more"]?.bool ?? false, askedAt: askedAt)
            return false
        }
        guard var response = first else { throw .late("the response ended early") }
        if hasLines {
            var batch = rest.isEmpty ? FeedBatch() : try FeedBatch(lines: &rest)
            batch.isComplete = !response.hasMore && batch.end != nil
            response.lines = batch
        }
        self = response
    }
}

extension Upstream {
    /// Returns the error for a change that has failed because the upstream is away.
    ///
    /// - Parameter error: the error of the request; `nil` if the change was not sent. After some errors it is unknown
    ///   whether the upstream has made the change.
    func refusal(of change: ProfileChange, _ error: (any Error)? = nil) -> StorageError {
        // After `readOnly` the caller decides by hash and stores nothing.
        if change.isDecision, configuration.offlineEnrollment == .hash { return .readOnly }
        return (error as? UpstreamError)?.isUnknown == true ? .undecided : .away
    }
}

extension ProfileChange {
    /// Whether the change stores decisions of the edge.
    fileprivate var isDecision: Bool { if case .assign = operation { true } else { false } }
}

extension ProfileChange.Operation {
    /// Whether an edge may send the change. Changes by admins go to the upstream with the admin's own credentials
    /// instead; see ``UpstreamPool``.
    fileprivate var isPassedOn: Bool {
        switch self {
        case .replace, .save, .assign: true
        case .restore, .override, .remove, .erase, .eraseKeepingTotals: false
        }
    }
}

extension Result<ProfileChangeResult, StorageError> {
    fileprivate var isOutdated: Bool { if case .failure(.staleDatafile) = self { true } else { false } }
}
