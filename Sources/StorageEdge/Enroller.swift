import Bucketing
import Dispatch
import JSON
import Storage

/// Sends changes of profiles to the upstream, which decides: all that wait in one request. Its response has the lines of the
/// feed up to these changes, which are applied before anybody hears of a result. So one exchange enrolls a user and brings
/// the copy up to date.
final class Enroller: Sendable {
    /// A change that waits.
    private struct Job: Sendable {
        let change: ProfileChange
        let report: @Sendable (Result<ProfileChangeResult, StorageError>) -> Void
    }

    private let upstream: Upstream
    private let applier: FeedApplier
    private let definitions: DefinitionsFollower
    private let lanes: Lanes<Job>
    /// The numbers of changes that the upstream has decided, and of those that did not reach it.
    let decided: Counter
    let offline: Counter
    /// The number of requests at the same time.
    private static let requests = 4
    /// What one request has at most: less than servers accept.
    private static let batch = (jobs: 1_024, bytes: 600 << 10)

    init(_ upstream: Upstream, _ applier: FeedApplier, _ definitions: DefinitionsFollower) {
        self.upstream = upstream
        self.applier = applier
        self.definitions = definitions
        let (decided, offline) = (Counter(), Counter())
        (self.decided, self.offline) = (decided, offline)
        lanes = Lanes(
            "edge-changes", count: Self.requests, limit: upstream.configuration.waitingRequests / Self.requests,
            batch: Self.batch, upstream, bytes: { $0.change.waitingBytes }
        ) { jobs, connection in
            let isDecided = Self.send(jobs, connection, upstream, applier, definitions)
            (isDecided ? decided : offline).add(jobs.count)
        }
    }

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
        // Those of a user stay in order.
        let hasRoom = lanes.add(Job(change: change, report: report), key: change.userID.hashValue)
        if !hasRoom { report(.failure(.overloaded)) }
    }

    func wait() { lanes.wait() }

    /// - Returns: whether the upstream has decided.
    private static func send(
        _ jobs: [Job], _ connection: UpstreamConnection, _ upstream: Upstream, _ applier: FeedApplier,
        _ definitions: DefinitionsFollower
    ) -> Bool {
        var results: [Result<ProfileChangeResult, StorageError>]
        var isDecided = true
        do {
            // Those that waited while the upstream was found to be away.
            guard upstream.isUp else { throw UpstreamError.noResponse("it was away before") }
            results = try send(jobs.map(\.change), connection, upstream, applier)
            if results.contains(where: \.isOutdated) { try definitions.catchUp(connection) }
        } catch {
            isDecided = false
            if let error = error as? UpstreamError {
                upstream.didFail(error)
                results = jobs.map { .failure(upstream.refusal(of: $0.change)) }
            } else {
                // The upstream has decided, and the copy could not be written: a guess might differ.
                results = jobs.map { _ in .failure(.unavailable(reason: "the copy cannot be updated: \(error)")) }
            }
        }
        for (job, result) in zip(jobs, results) { job.report(result) }
        return isDecided
    }

    private static func send(
        _ changes: [ProfileChange], _ connection: UpstreamConnection, _ upstream: Upstream, _ applier: FeedApplier
    ) throws -> [Result<ProfileChangeResult, StorageError>] {
        let position = applier.position
        let askedAt = DispatchTime.now().uptimeNanoseconds
        var body = try connection.expect(
            .init(
                method: "POST", path: "/edge/v1/changes", fields: ["Content-Type: application/json"],
                body: encode(changes, after: position), seconds: upstream.configuration.timeout)
        ).body
        var results: [Result<ProfileChangeResult, StorageError>]?
        var reached: (place: FeedCursor?, hasMore: Bool) = (nil, false)
        _ = try body.takeLines { line throws(UpstreamError) in
            let object = (try? JSONParser().parse(line))?.object
            results = try self.results(object, of: changes)
            reached = (object?["position"]?.string.flatMap { FeedCursor($0) }, object?["more"]?.bool ?? false)
            return false
        }
        guard let results else { throw UpstreamError.noResponse("the response ended early") }
        guard position != nil else { return results }
        var batch = body.isEmpty ? FeedBatch() : try FeedBatch(lines: &body)
        batch.isComplete = !reached.hasMore && batch.end != nil
        try applier.apply(batch, askedAt: askedAt)
        // The copy is far behind.
        if reached.hasMore { try applier.catchUp(to: reached.place, connection, upstream) }
        return results
    }

    // MARK: JSON

    private static func encode(_ changes: [ProfileChange], after position: FeedCursor?) -> [UInt8] {
        var writer = JSONWriter(capacity: 64 + 192 * changes.count)
        writer.beginObject()
        writer.member("after", position?.text)
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
    /// What a change gets that the upstream cannot make at present.
    func refusal(of change: ProfileChange) -> StorageError {
        // Decisions go on without storing.
        if case .assign = change.operation, configuration.offlineEnrollment == .hash { return .readOnly }
        return .away
    }
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
    /// Whether an edge may ask for it. What admins do goes to the upstream with their own credentials.
    fileprivate var isPassedOn: Bool {
        switch self {
        case .replace, .save, .assign: true
        case .restore, .override, .remove, .erase, .eraseKeepingTotals: false
        }
    }

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
        case .assign(let proposals, let version, let anonymousID):
            writer.member("kind", "assign")
            writer.key("proposals")
            writer.beginArray()
            for proposal in proposals {
                writer.beginObject()
                writer.member("experiment_id", proposal.experimentID.string)
                writer.member("variation_id", proposal.variationID.string)
                writer.member("replacing", proposal.replacing?.string)
                writer.member("is_from_anonymous_profile", proposal.isFromAnonymousProfile)
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
