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
        try await feed.presence?.expect(object, call)
        var after: FeedCursor?
        if let text = try object.optionalText("after") {
            do throws(FeedReader.Failure) { after = try await feed.begin(text) } catch {
                throw FeedEndpoint.problem(error)
            }
        }
        if let after { try await feed.presence?.expect(after, feed.reader, call) }
        let results = await submit(try object.elements("changes", limit: EdgeProtocol.mostElements))
        return await response(results, after: after)
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
        case "replace": return .replace(try map(object, at: place))
        case "save":
            let text = try object.optionalText("on_conflict", in: place) ?? "replace"
            guard let rule = ["replace": ProfileChange.ConflictRule.replace, "keep": .keep][text] else {
                throw CoreError(
                    .invalid, "`on_conflict` must be 'replace' or 'keep'; got '\(text)'",
                    at: place.appending("on_conflict"))
            }
            return .save(try map(object, at: place), onConflict: rule)
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
    private static func map(_ object: JSONObject, at place: JSONPointer) throws(CoreError) -> ExperimentBucketMap {
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

    /// Responds with the results of committed changes. A failure to read the feed does not affect them.
    ///
    /// The first line has `position`, the end of the feed after the changes; `more` if the feed lines do not reach it,
    /// so that the edge must read on; and `gone` if the changes after the edge's cursor have been deleted.
    private func response(
        _ results: [Result<ProfileChangeResult, any Error>], after: FeedCursor?
    ) async -> Response {
        var end: FeedCursor?
        var batch: FeedReader.Batch?
        var isGone = false
        var feedLines = JSONWriter(capacity: 256)
        if let after {
            do {
                let position = try await feed.reader.end()
                end = position
                let read = try await feed.reader.read(
                    after: after, upTo: position, kinds: feed.kinds, limit: Self.maximumFeedLines)
                try await feed.append(read, to: &feedLines)
                batch = read
            } catch FeedReader.Failure.gone {
                isGone = true
            } catch {
                // The response has no lines of the feed; the edge reads them later.
                feedLines = JSONWriter()
            }
        }
        let hasAll = batch?.isUpTo(end) ?? false
        var writer = JSONWriter(capacity: 128 + results.count * 256)
        writer.beginObject()
        writer.key("results")
        writer.beginArray()
        for result in results { Self.append(result, to: &writer) }
        writer.endArray()
        writer.member("position", end?.text)
        writer.member("more", after != nil && !hasAll)
        if isGone { writer.member("gone", true) }
        writer.endObject()
        writer.endLine()
        return Response(.ok, contentType: MediaType.lines, body: .bytes(writer.finish() + feedLines.finish()))
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

extension JSONObject {
    /// Returns a required array member.
    func elements(_ name: String, limit: Int, in place: JSONPointer = []) throws(CoreError) -> [JSONValue] {
        guard let elements = self[name]?.array else {
            throw CoreError(
                .invalid, "`\(name)` must be an array; got \(self[name]?.kind ?? "nothing")", at: place.appending(name))
        }
        guard elements.count <= limit else {
            throw CoreError(
                .invalid, "`\(name)` must have at most \(limit) elements; got \(elements.count)",
                at: place.appending(name))
        }
        return elements
    }
}
