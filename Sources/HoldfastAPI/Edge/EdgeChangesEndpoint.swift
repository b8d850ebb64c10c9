import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /edge/v1/changes`: stores the profile saves and variation assignments that an edge makes for its clients. The
/// response also has the lines of the feed up to these changes, so that one round trip updates the edge's copy.
///
/// The request is `{"after":CURSOR?,"generation":EPOCH?,"changes":[…]}`. Each change is stored or fails by itself. The
/// response has one line with the results in order, and then the lines of the feed after the cursor `after`:
///
///     {"results":[{"existed":true,"changed":true,"profile":…,"refused":[]},{"error":"overloaded","reason":…}],…}
///     {…a line of the feed…}
struct EdgeChangesEndpoint {
    let store: any StoreSession
    let feed: FeedEndpoint

    /// The maximum number of feed lines in a response.
    private static let maximumFeedLines = 10_000

    /// Stores the changes, and responds with their results. Without `after` the response has no lines of the feed.
    ///
    /// - Throws: 410 if the edge follows another `generation`. Nothing is changed then, because the edge made its
    ///   decisions by other definitions.
    func post(_ body: [UInt8], _ call: Call) async throws -> Response {
        let object = try JSONInput.parse(body).object("a request", knowing: ["after", "generation", "changes"])
        try await feed.presence?.checkGeneration(of: object, call)
        var after: FeedCursor?
        if let text = try object.optionalText("after") {
            do throws(FeedReader.Failure) { after = try await feed.cursor(of: text) } catch {
                throw FeedEndpoint.problem(error)
            }
        }
        if let after { try await feed.presence?.check(cursor: after, feed.reader, call) }
        let results = await submit(try object.elements("changes", limit: EdgeProtocol.maximumElements))
        var feedPart: FeedPart?
        if let after { feedPart = await readFeed(after: after) }
        return Self.response(results, feedPart)
    }

    // MARK: Changes

    /// Parses and stores the elements of `changes`.
    ///
    /// - Returns: the result of each element, or the error of an element that cannot be parsed.
    private func submit(_ elements: [JSONValue]) async -> [Result<ProfileChangeResult, any Error>] {
        let changes = elements.enumerated().map { index, element -> Result<ProfileChange, any Error> in
            Result { try Self.change(element, at: JSONPointer().appending("changes").appending(index)) }
        }
        let accepted = changes.compactMap { try? $0.get() }
        // The outcomes of the accepted changes only, in order.
        var outcomes = await settled { store.submit(accepted, by: nil, $0) }[...]
        return changes.map { change -> Result<ProfileChangeResult, any Error> in
            switch change {
            case .failure(let error): return .failure(error)
            case .success:
                switch outcomes.popFirst() {
                case .success(let result)?: return .success(result)
                case .failure(let error)?: return .failure(error)
                case nil: return .failure(StorageError.closed)
                }
            }
        }
    }

    /// Parses `{"user_id":TEXT,"operation":{…}}`. An `author` is accepted, but not used.
    private static func change(_ value: JSONValue, at place: JSONPointer) throws(CoreError) -> ProfileChange {
        let object = try value.object("a change", knowing: ["user_id", "operation", "author"], at: place)
        let userID = try ProfileInput.checkUserID(
            try object.text("user_id", in: place), at: place.appending("user_id"))
        let pointer = place.appending("operation")
        guard let operation = object["operation"]?.object else {
            let found = object["operation"]?.kind ?? "nothing"
            throw CoreError(.invalid, "`operation` must be an object; got \(found)", at: pointer)
        }
        return ProfileChange(userID: userID, operation: try Self.operation(operation, at: pointer))
    }

    /// Parses an operation. Its `kind` determines the other members:
    ///
    /// - `replace`: `map`
    /// - `save`: `map` and `on_conflict`
    /// - `assign`: `proposals`, `decided_with` and `anonymous_id`
    private static func operation(
        _ object: JSONObject, at place: JSONPointer
    ) throws(CoreError) -> ProfileChange.Operation {
        let kind = try object.text("kind", in: place)
        switch kind {
        case "replace": return .replace(try bucketMap(of: object, at: place))
        case "save":
            let text = try object.optionalText("on_conflict", in: place) ?? "replace"
            guard let rule = ["replace": ProfileChange.ConflictRule.replace, "keep": .keep][text] else {
                throw CoreError(
                    .invalid, "`on_conflict` must be 'replace' or 'keep'; got '\(text)'",
                    at: place.appending("on_conflict"))
            }
            return .save(try bucketMap(of: object, at: place), onConflict: rule)
        case "assign": return try assignments(object, at: place)
        default:
            throw CoreError(
                .invalid,
                "an edge may send changes of the kinds replace, save and assign; got '\(kind.shortened(to: CoreError.longestQuote))'",
                at: place.appending("kind"))
        }
    }

    /// Parses the assignments that an edge has decided on.
    private static func assignments(
        _ object: JSONObject, at place: JSONPointer
    ) throws(CoreError) -> ProfileChange.Operation {
        let proposals = try object.elements("proposals", limit: .max, in: place)
        guard let version = object["decided_with"]?.integer else {
            throw CoreError(
                .invalid, "`decided_with` must be the version of a datafile", at: place.appending("decided_with"))
        }
        var candidates: [ProfileChange.Candidate] = []
        for (index, proposal) in proposals.enumerated() {
            candidates.append(try candidate(proposal, at: place.appending("proposals").appending(index)))
        }
        let anonymousID = try object.optionalText("anonymous_id", in: place).map { text throws(CoreError) in
            try ProfileInput.checkUserID(text, at: place.appending("anonymous_id"))
        }
        return .assign(candidates, decidedWith: version, anonymousID: anonymousID)
    }

    /// Parses the member `map`: experiment ids, each with a variation id.
    private static func bucketMap(of object: JSONObject, at place: JSONPointer) throws(CoreError) -> ExperimentBucketMap
    {
        let place = place.appending("map")
        guard let map = object["map"]?.object else {
            throw CoreError(.invalid, "`map` must be an object; got \(object["map"]?.kind ?? "nothing")", at: place)
        }
        var entries: [ExperimentBucketMap.Entry] = []
        for member in map {
            let pointer = place.appending(member.key)
            entries.append(
                .init(
                    experimentID: try NameRule.checkExperimentID(member.key, at: pointer),
                    variationID: try ProfileInput.variationID(member.value, at: pointer)))
        }
        return ExperimentBucketMap(entries)
    }

    /// Parses one of the `proposals`.
    private static func candidate(
        _ value: JSONValue, at place: JSONPointer
    ) throws(CoreError) -> ProfileChange.Candidate {
        let object = try value.object(
            "a proposal", knowing: ["experiment_id", "variation_id", "replacing", "is_from_anonymous_profile"],
            at: place)
        return ProfileChange.Candidate(
            experimentID: try NameRule.checkExperimentID(
                try object.text("experiment_id", in: place), at: place.appending("experiment_id")),
            variationID: try ProfileInput.variationID(
                object["variation_id"] ?? .null, at: place.appending("variation_id")),
            replacing: try object.optionalText("replacing", in: place).map { Identifier($0) },
            isFromAnonymousProfile: object["is_from_anonymous_profile"]?.bool ?? false)
    }

    // MARK: The response

    /// The part of the feed in a response.
    private struct FeedPart {
        /// The end of the feed after the changes; `nil` if it could not be read.
        var end: FeedCursor?
        /// The encoded lines.
        var lines: [UInt8] = []
        /// Whether the lines reach ``end``.
        var hasAll = false
        /// Whether the changes after the edge's cursor have been deleted.
        var isGone = false
    }

    /// Reads the lines of the feed after the edge's cursor. If that fails, the response has no lines, and the edge
    /// reads them later: the changes are committed already, so their results must be sent in any case.
    private func readFeed(after: FeedCursor) async -> FeedPart {
        var part = FeedPart()
        var writer = JSONWriter(capacity: 256)
        do {
            let end = try await feed.reader.end()
            part.end = end
            let batch = try await feed.reader.read(
                after: after, upTo: end, kinds: feed.kinds, limit: Self.maximumFeedLines)
            try await feed.append(batch, to: &writer)
            part.lines = writer.finish()
            part.hasAll = batch.isUpTo(end)
        } catch FeedReader.Failure.gone {
            part.isGone = true
        } catch {
            // The part has no lines.
        }
        return part
    }

    /// Returns the response with the results of the changes and the lines of the feed.
    ///
    /// The first line has `position`, the end of the feed after the changes. It has `more` if the edge must read on,
    /// because the lines do not reach this end. It has `gone` if the changes after the edge's cursor have been deleted.
    ///
    /// - Parameter feed: `nil` if the request has no cursor.
    private static func response(
        _ results: [Result<ProfileChangeResult, any Error>], _ feed: FeedPart?
    ) -> Response {
        var writer = JSONWriter(capacity: 128 + results.count * 256)
        writer.beginObject()
        writer.key("results")
        writer.beginArray()
        for result in results { append(result, to: &writer) }
        writer.endArray()
        writer.member("position", feed?.end?.text)
        writer.member("more", feed.map { !$0.hasAll } ?? false)
        if feed?.isGone == true { writer.member("gone", true) }
        writer.endObject()
        writer.endLine()
        return Response(.ok, contentType: MediaType.lines, body: .bytes(writer.finish() + (feed?.lines ?? [])))
    }

    private static func append(_ result: Result<ProfileChangeResult, any Error>, to writer: inout JSONWriter) {
        writer.beginObject()
        switch result {
        case .success(let result):
            writer.member("existed", result.existed)
            writer.member("changed", result.changed)
            writer.member("profile", base64URL: result.profile?.bytes)
            writer.member("refused", result.refused.map(\.string))
        case .failure(let error as StorageError):
            writer.member("error", error.edgeName)
            if case .tooManyAssignments(let limit) = error { writer.member("limit", limit) }
            writer.member("reason", CoreError(error).detail)
        case .failure(let error):
            writer.member("error", "invalid")
            writer.member("reason", Problem(error).sentence)
        }
        writer.endObject()
    }
}

extension StorageError {
    /// The name of the error in responses to an edge.
    fileprivate var edgeName: String {
        switch self {
        case .tooManyAssignments: "too_many_assignments"
        case .conditionFailed: "condition_failed"
        case .overloaded: "overloaded"
        case .unavailable, .away, .undecided: "unavailable"
        case .staleDatafile: "stale_datafile"
        case .damaged: "damaged"
        case .erased: "erased"
        case .unstorable: "unstorable"
        case .readOnly: "read_only"
        case .closed: "closed"
        }
    }
}
