import Bucketing
import Dispatch
import JSON
import Storage
import Tracing

/// Sends changes of profiles to the upstream, which makes them: enrollments that the edge has decided, and saves of app
/// servers. All waiting changes go in one request.
///
/// The response has the results, and the lines of the feed up to these changes. The lines are applied to the copy
/// before the results are reported, so one exchange both enrolls a user and updates the copy.
final class Enroller: Sendable {
    /// A change that waits to be sent.
    private struct Job: Sendable {
        let change: ProfileChange
        /// The generation of the definitions with which a decision was made, 0 if it is unknown; `nil` for a change
        /// that is not a decision.
        let generation: Int64?
        let span: Span?
        let report: @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    }

    private let upstream: Upstream
    private let applier: FeedApplier
    private let definitions: DefinitionsFollower
    private let lanes: Lanes<Job>
    /// The number of changes that the upstream has accepted or refused.
    let decided: Counter
    /// The number of changes that have failed, because the upstream was away.
    let offline: Counter
    /// The maximum number of concurrent requests.
    private static let requests = 4
    /// The maximum number of changes in a request, and their size in bytes. Both are below the limits of servers.
    private static let batch = (jobs: 1_024, bytes: 600 << 10)

    init(_ upstream: Upstream, _ applier: FeedApplier, _ definitions: DefinitionsFollower) {
        self.upstream = upstream
        self.applier = applier
        self.definitions = definitions
        let decided = Counter()
        let offline = Counter()
        self.decided = decided
        self.offline = offline
        lanes = Lanes(
            "edge-changes", count: Self.requests, limit: upstream.configuration.waitingRequests / Self.requests,
            batch: Self.batch, upstream, bytes: { $0.change.waitingBytes }
        ) { jobs, connection in
            let isDecided = Self.send(jobs, connection, upstream, applier, definitions)
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

    func wait() { lanes.wait() }

    /// Sends changes in one request, applies the lines of the response, and reports the results. If the upstream has
    /// another generation than the copy, the request is sent a second time, after the copy has begun anew.
    ///
    /// - Returns: whether the upstream has decided.
    private static func send(
        _ jobs: [Job], _ connection: UpstreamConnection, _ upstream: Upstream, _ applier: FeedApplier,
        _ definitions: DefinitionsFollower
    ) -> Bool {
        var jobs = jobs
        do {
            // The upstream may have been found to be away while these jobs waited.
            guard upstream.isUp else { throw UpstreamError.noResponse("it was away before") }
            try meetGeneration(of: &jobs, connection, upstream, applier, definitions)
            guard !jobs.isEmpty else { return true }
            var sent = Result { () throws(UpstreamError) in
                try send(jobs.map(\.change), jobs.compactMap(\.span), connection, upstream, applier)
            }
            if case .failure(.refused(410, let detail)) = sent {
                // The upstream has changed nothing.
                applier.forget(applier.generation, detail)
                try meetGeneration(of: &jobs, connection, upstream, applier, definitions)
                guard !jobs.isEmpty else { return true }
                sent = Result { () throws(UpstreamError) in
                    try send(jobs.map(\.change), jobs.compactMap(\.span), connection, upstream, applier)
                }
            }
            let response = try sent.get()
            do {
                try apply(response, connection, upstream, applier)
                if response.results.contains(where: \.isOutdated) { try definitions.catchUp(connection) }
            } catch FeedApplier.Failure.needsCopy(let reason) {
                applier.forget(applier.generation, reason)
            } catch {
                // The upstream has decided, so the results are reported. While the copy cannot be written, lookups ask
                // the upstream as well.
            }
            for (job, result) in zip(jobs, response.results) { job.report(result) }
            return true
        } catch {
            if let error = error as? UpstreamError { upstream.didFail(error) }
            for job in jobs { job.report(.failure(upstream.refusal(of: job.change, error))) }
            return false
        }
    }

    /// Makes the copy follow the upstream's generation if there are decisions to send. Decisions that were made with
    /// definitions of another generation fail as stale, so that the caller decides again, and are removed from the
    /// jobs.
    private static func meetGeneration(
        of jobs: inout [Job], _ connection: UpstreamConnection, _ upstream: Upstream, _ applier: FeedApplier,
        _ definitions: DefinitionsFollower
    ) throws {
        if applier.decidingGeneration == nil, jobs.contains(where: { $0.generation != nil }) {
            _ = try applier.beginCopy(connection, upstream)
            try definitions.catchUp(connection)
        }
        let present = applier.decidingGeneration
        for job in jobs where job.generation != nil && job.generation != present {
            job.report(.failure(.staleDatafile))
        }
        jobs.removeAll { $0.generation != nil && $0.generation != present }
    }

    /// The results of the upstream, and the lines of the feed up to them.
    private struct Response {
        var results: [Result<ProfileChangeResult, StorageError>]
        /// The lines; `nil` if the copy follows no feed at present.
        var lines: FeedBatch?
        /// The position in the feed after the changes.
        var reached: FeedCursor?
        /// Whether there are too many lines up to this position for one response.
        var hasMore = false
        /// When the request was sent, in monotonic nanoseconds.
        let askedAt: UInt64
    }

    private static func send(
        _ changes: [ProfileChange], _ spans: [Span], _ connection: UpstreamConnection, _ upstream: Upstream,
        _ applier: FeedApplier
    ) throws(UpstreamError) -> Response {
        let position = applier.position
        let askedAt = DispatchTime.now().uptimeNanoseconds
        var body = try connection.expect(
            .init(
                method: "POST", path: "/edge/v1/changes", fields: ["Content-Type: application/json"],
                body: encode(changes, after: position, applier.generation), seconds: upstream.configuration.timeout,
                spans: spans)
        ).body
        var first: Response?
        _ = try body.takeLines { line throws(UpstreamError) in
            let object = (try? JSONParser().parse(line))?.object
            first = Response(
                results: try Self.results(object, of: changes),
                reached: object?["position"]?.string.flatMap { FeedCursor($0) },
                hasMore: object?["more"]?.bool ?? false, askedAt: askedAt)
            return false
        }
        guard var response = first else { throw .late("the response ended early") }
        if position != nil {
            var batch = body.isEmpty ? FeedBatch() : try FeedBatch(lines: &body)
            batch.isComplete = !response.hasMore && batch.end != nil
            response.lines = batch
        }
        return response
    }

    /// Applies the lines of a response, and further lines until the copy has all changes of the response.
    private static func apply(
        _ response: Response, _ connection: UpstreamConnection, _ upstream: Upstream, _ applier: FeedApplier
    ) throws {
        guard let lines = response.lines else { return }
        try applier.apply(lines, askedAt: response.askedAt)
        // The copy is far behind.
        if response.hasMore { try applier.catchUp(to: response.reached, connection, upstream) }
    }

    // MARK: JSON

    private static func encode(
        _ changes: [ProfileChange], after position: FeedCursor?, _ generation: Int64?
    ) -> [UInt8] {
        var writer = JSONWriter(capacity: 64 + 192 * changes.count)
        writer.beginObject()
        writer.member("after", position?.text)
        writer.member("generation", generation.map { String($0, radix: 16) })
        writer.key("changes")
        writer.beginArray()
        for change in changes {
            writer.beginObject()
            writer.member("user_id", change.userID.string)
            writer.key("operation")
            change.operation.append(to: &writer)
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
        return writer.finish()
    }

    /// Decodes the results, one for each change in order.
    private static func results(
        _ object: JSONObject?, of changes: [ProfileChange]
    ) throws(UpstreamError) -> [Result<ProfileChangeResult, StorageError>] {
        guard let list = object?["results"]?.array, list.count == changes.count else {
            throw .malformed("there must be a result for each change")
        }
        var results: [Result<ProfileChangeResult, StorageError>] = []
        for (value, change) in zip(list, changes) {
            guard let result = value.object else { throw .malformed("a result must be an object") }
            if let error = result["error"]?.string {
                results.append(.failure(StorageError(edge: error, result)))
                continue
            }
            results.append(
                .success(
                    ProfileChangeResult(
                        existed: result["existed"]?.bool ?? false, changed: result["changed"]?.bool ?? false,
                        profile: try ProfileRecord(edge: result["profile"], of: change.userID),
                        refused: (result["refused"]?.array ?? []).compactMap { $0.string.map { Identifier($0) } })))
        }
        return results
    }
}

extension Upstream {
    /// Returns the error for a change that the upstream cannot make now, or that it may or may not have made.
    func refusal(of change: ProfileChange, _ error: (any Error)? = nil) -> StorageError {
        // A read-only store makes decisions without storing them.
        if change.isDecision, configuration.offlineEnrollment == .hash { return .readOnly }
        return (error as? UpstreamError)?.isUnknown == true ? .undecided : .away
    }
}

extension ProfileChange {
    /// Whether the change stores decisions of the edge.
    fileprivate var isDecision: Bool { if case .assign = operation { true } else { false } }
}

extension Result<ProfileChangeResult, StorageError> {
    fileprivate var isOutdated: Bool { if case .failure(.staleDatafile) = self { true } else { false } }
}

extension StorageError {
    /// Decodes the error of a result.
    fileprivate init(edge name: String, _ object: JSONObject) {
        let reason = object["reason"]?.string ?? name
        self =
            switch name {
            case "too_many_assignments": .tooManyAssignments(limit: Int(object["limit"]?.integer ?? 0))
            case "overloaded": .overloaded
            case "stale_datafile": .staleDatafile
            case "damaged": .damaged(reason: reason)
            case "erased": .erased
            case "read_only": .readOnly
            default: .unavailable(reason: "the upstream refuses the change: \(reason)")
            }
    }
}

extension ProfileChange.Operation {
    /// Whether an edge may send the change. Requests of admins go to the upstream with their own credentials instead.
    fileprivate var isPassedOn: Bool {
        switch self {
        case .replace, .save, .assign: true
        case .restore, .override, .remove, .erase, .eraseKeepingTotals: false
        }
    }

    /// Writes the operation as `/edge/v1/changes` expects it.
    fileprivate func append(to writer: inout JSONWriter) {
        func append(_ map: ExperimentBucketMap) {
            writer.key("map")
            writer.beginObject()
            for entry in map.entries {
                writer.key(text: entry.experimentID.string)
                writer.string(entry.variationID.string)
            }
            writer.endObject()
        }
        writer.beginObject()
        switch self {
        case .replace(let map):
            writer.member("kind", "replace")
            append(map)
        case .save(let map, let rule):
            writer.member("kind", "save")
            append(map)
            writer.member("on_conflict", rule == .keep ? "keep" : "replace")
        case .assign(let candidates, let version, let anonymousID):
            writer.member("kind", "assign")
            writer.key("proposals")
            writer.beginArray()
            for candidate in candidates {
                writer.beginObject()
                writer.member("experiment_id", candidate.experimentID.string)
                writer.member("variation_id", candidate.variationID.string)
                writer.member("replacing", candidate.replacing?.string)
                writer.member("is_from_anonymous_profile", candidate.isFromAnonymousProfile)
                writer.endObject()
            }
            writer.endArray()
            writer.member("decided_with", version)
            writer.member("anonymous_id", anonymousID?.string)
        case .restore, .override, .remove, .erase, .eraseKeepingTotals: break
        }
        writer.endObject()
    }
}
