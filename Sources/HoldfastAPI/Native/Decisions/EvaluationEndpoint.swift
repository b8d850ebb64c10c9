import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// `POST /v1/evaluations`: evaluates flags for one user, all or those with a tag or key, for a client library to cache.
/// New assignments are stored, as by `/v1/assign`. No exposure is recorded, because only the client knows when the user sees a variation.
struct EvaluationEndpoint {
    let decisions: StickyDecisionService
    let projects: ProjectView

    /// Responds with the evaluations, or with 304 if `If-None-Match` matches them.
    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let known = request.field("if-none-match")
        let input = try request.withBody { bytes throws(CoreError) in
            try EvaluationRequest(JSONInput.parse(bytes), call)
        }
        let sdkKey = input.sdkKey ?? request.sdkKey
        let project =
            try sdkKey == nil ? projects.project(ofAny: call) : projects.project(named: sdkKey, for: call.access)
        if !call.isUpToDate, let project,
            let key = input.flagKeys.first(where: { project.datafile.flag(key: $0) == nil })
        {
            throw CoreError.undefined("no flag has the key '\(key)'")
        }
        var decided: Decisions?
        if let project { decided = try await decisions.decide(input.query.usable(in: project), in: project) }
        return .json(Self.encode(decided, of: input.query.user, input.flagKeys), ifNoneMatch: known)
    }

    /// `GET /v1/profiles/{user_id}/evaluations`: the current value of each flag for a user, from the stored profile and
    /// attributes, in the order of the keys. Stores and counts nothing.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        let page = try ListPage(request, besides: ["defined_by"])
        let definer = page.query["defined_by"]
        if let definer, !["flag", "experiment", "datafile"].contains(definer) {
            throw CoreError(.invalid, "`defined_by` must be flag, experiment or datafile; got '\(definer)'")
        }
        let project = try projects.project(named: request.sdkKey, for: call.access)
        let definitions = project.definitions
        let flags = project.datafile.flags.filter { definer == nil || definer == $0.definer(in: definitions) }
        let selection = page.select(flags, key: \.key) { $0.searchedTexts(definitions) }
        let keys = selection.elements.map(\.key)
        let decided = try await decisions.decide(
            DecisionQuery(
                for: User(id: userID), .chosenFlags { _ in keys }, options: .disableDecisionEvent,
                storesAssignments: false), in: project)
        return .json(
            Self.encode(decided, of: User(id: userID), []) { $0.member("next", selection.next) })
    }

    /// - Parameters:
    ///   - decisions: `nil` if the server has no project, and so no flags.
    ///   - flagKeys: the flags that the request names.
    ///   - end: writes members at the end.
    private static func encode(
        _ decisions: Decisions?, of user: User, _ flagKeys: [Identifier], end: (inout JSONWriter) -> Void = { _ in }
    ) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("user_id", user.id.string)
        writer.member("revision", decisions?.project.datafile.revision ?? "0")
        writer.key("evaluations")
        writer.beginArray()
        if let decisions {
            for decision in decisions.flags {
                FlagEvaluation(decision, decisions.project.datafile).append(to: &writer)
            }
        }
        writer.endArray()
        let unknown = flagKeys.filter { decisions?.project.datafile.flag(key: $0) == nil }
        if !unknown.isEmpty { writer.member("unknown_flag_keys", unknown.map(\.string)) }
        end(&writer)
        writer.endObject()
        return writer.finish()
    }
}

/// `{"user_id","anonymous_id"?,"attributes"?,"sdk_key"?,"tags"?,"flag_keys"?,"include_reasons"?}`
private struct EvaluationRequest: Sendable {
    let query: DecisionQuery
    let sdkKey: String?
    /// The flags that the request names. The response lists unknown ones as `unknown_flag_keys`.
    let flagKeys: [Identifier]

    private static let members = [
        "user_id", "anonymous_id", "attributes", "sdk_key", "tags", "flag_keys", "include_reasons",
    ]

    init(_ value: JSONValue, _ call: Call) throws(CoreError) {
        let object = try value.object("a request", knowing: Self.members)
        let user = try ProfileInput.user(of: object, at: [])
        let anonymousID = try ProfileInput.anonymousID(of: object, mayNameAny: call.mayNameAnyUser)
        sdkKey = try object.optionalText("sdk_key")
        let keys = try object.optionalTexts("flag_keys")?.map { Identifier($0) }
        flagKeys = keys ?? []
        let selection = try FlagSelection(tags: object.optionalTexts("tags"), keys: keys)
        var includesReasons = false
        if let value = object["include_reasons"], !value.isNull {
            guard let flag = value.bool else {
                throw CoreError(
                    .invalid, "`include_reasons` must be true or false; got \(value.kind)", at: ["include_reasons"])
            }
            includesReasons = flag
        }
        query = DecisionQuery(
            for: user, anonymousID: anonymousID, selection.map { .chosenFlags($0.keys) } ?? .allFlags,
            options: includesReasons ? [.disableDecisionEvent, .includeAllReasons] : .disableDecisionEvent)
    }
}

/// The flags of a request: those with one of the tags, and those with one of the keys.
private struct FlagSelection: Sendable {
    private let tags: Set<Identifier>?
    private let keys: Set<Identifier>?

    /// - Returns: `nil` if there are neither tags nor keys.
    init?(tags: [String]?, keys: [Identifier]?) {
        guard tags != nil || keys != nil else { return nil }
        self.tags = tags.map { Set($0.map { Identifier($0) }) }
        self.keys = keys.map { Set($0) }
    }

    /// Returns the keys of the selected flags in the order of the datafile.
    func keys(in datafile: Datafile) -> [Identifier] {
        datafile.flags.compactMap { flag in
            let isTagged = tags.map { !$0.isDisjoint(with: flag.annotations.tags) } ?? true
            return isTagged && keys?.contains(flag.key) ?? true ? flag.key : nil
        }
    }
}

/// `POST /v1/bucket`: hashes an id into a bucket. Pure: reads and stores nothing.
struct BucketEndpoint {
    /// Responds to `{"bucketing_id","parent_id","traffic_allocation"?}` with `{"hash","bucket_value","entity_id"}`.
    /// `entity_id` is `null` if no range contains the bucket value, or if there is no allocation.
    func post(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let body = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let object = try body.object("a request", knowing: ["bucketing_id", "parent_id", "traffic_allocation"])
        let result = Bucketer.bucket(
            bucketingID: Identifier(try object.text("bucketing_id")),
            parentID: Identifier(try object.text("parent_id")),
            trafficAllocation: try Self.allocation(object["traffic_allocation"]))
        return .json([
            "hash": .integer(Int64(result.hash)), "bucket_value": .integer(Int64(result.bucketValue)),
            "entity_id": result.entityID.map { .string($0.string) } ?? .null,
        ])
    }

    private static func allocation(_ value: JSONValue?) throws(CoreError) -> TrafficAllocation {
        guard let value else { return TrafficAllocation(ranges: []) }
        guard value.array != nil else {
            throw CoreError(
                .invalid, "`traffic_allocation` must be an array; got \(value.kind)", at: ["traffic_allocation"])
        }
        if let count = value.array?.count, count > Bucketer.bucketCount {
            throw CoreError(
                .invalid, "`traffic_allocation` must have at most \(Bucketer.bucketCount) ranges; got \(count)",
                at: ["traffic_allocation"])
        }
        do throws(DatafileError) {
            return try TrafficAllocation(json: value)
        } catch {
            let first = error.problems.first
            let place = first.map {
                JSONPointer.member("traffic_allocation", insteadOf: "trafficAllocation", in: $0.pointer)
            }
            throw CoreError(.invalid, first?.reason ?? "`traffic_allocation` is not usable", at: place)
        }
    }
}

extension JSONPointer {
    /// Returns the pointer with its first member renamed from `former` to `name`.
    fileprivate static func member(_ name: String, insteadOf former: String, in pointer: JSONPointer) -> JSONPointer {
        let parts = pointer.string.split(separator: "/", omittingEmptySubsequences: false).dropFirst().map(String.init)
        return parts.enumerated().reduce(JSONPointer()) { place, part in
            place.appending(part.offset == 0 && part.element == former ? name : part.element)
        }
    }
}
