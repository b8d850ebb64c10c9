import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// `POST /v1/evaluations`: evaluates all flags for one user, or the flags with a tag or key, for a client library to
/// cache. New assignments are stored, as by `/v1/assign`. No exposure is recorded, because only the client knows when
/// the user sees a variation.
struct EvaluationEndpoint {
    let decisions: StickyDecisionService
    let projects: ProjectView

    /// Responds with the evaluations, or with 304 if `If-None-Match` matches them.
    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let entityTagsOfCaller = request.field("if-none-match")
        let input = try request.withBody { bytes throws(CoreError) in
            try EvaluationRequest(JSONInput.parse(bytes), call)
        }
        let sdkKey = input.sdkKey ?? request.sdkKey
        let project =
            try sdkKey == nil ? projects.project(ofAny: call) : projects.project(named: sdkKey, for: call.access)
        // Another server may have just defined a flag that is unknown here. After this error, the route reads the
        // newest definitions and calls this method again.
        if !call.isUpToDate, let project,
            let key = input.flagKeys.first(where: { project.datafile.flag(key: $0) == nil })
        {
            throw CoreError.undefined("no flag has the key '\(key)'")
        }
        var decided: Decisions?
        if let project { decided = try await decisions.decide(input.query.usable(in: project), in: project) }
        return .json(Self.encode(decided, of: input.query.user, input.flagKeys), ifNoneMatch: entityTagsOfCaller)
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

    /// Returns the body of a response.
    ///
    /// - Parameters:
    ///   - decisions: `nil` if the server has no project, and so no flags.
    ///   - flagKeys: the flags that the request names.
    ///   - end: writes further members at the end.
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

/// The body of `POST /v1/evaluations`:
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

/// The flags that a request selects. If it has tags, a flag must have one of them; if it has keys, the flag's key must
/// be one of them.
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
            let isListed = keys?.contains(flag.key) ?? true
            return isTagged && isListed ? flag.key : nil
        }
    }
}
