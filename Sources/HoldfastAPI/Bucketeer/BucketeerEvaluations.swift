import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /get_evaluations` and `POST /get_evaluation`: evaluate flags for one user. New assignments are stored, as by
/// `/v1/decide`. No exposures are recorded here: the SDK reports them as evaluation events
/// (``BucketeerEventEndpoint``).
struct BucketeerEvaluationEndpoints {
    let decisions: StickyDecisionService
    let projects: ProjectView

    /// The id of an empty list of evaluations, for a caller without a project.
    private static let noEvaluations = "no_evaluations"

    /// Responds with the evaluations of all flags that have the tag; with none if the SDK has the same evaluations
    /// already.
    func postAll(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let input = try request.withBody { bytes throws(CoreError) in
            try BucketeerEvaluationRequest(JSONInput.parse(bytes))
        }
        guard let project = try projects.project(ofAny: call) else {
            return .json(Self.encode([], id: Self.noEvaluations, isChanged: false))
        }
        let subject: DecisionQuery.Subject =
            input.tag.isEmpty
            ? .allFlags : .chosenFlags { datafile in datafile.flags.filter { $0.isTagged(input.tag) }.map(\.key) }
        let evaluations = try await evaluations(of: subject, for: input.user(project.schema), in: project)
        let list = Self.encode(evaluations, of: input.userID)
        // The id covers everything that the list depends on, such as assignments and overrides.
        let id = String(EntityTag(of: list).value)
        let isChanged = id != input.evaluationsID
        return .json(Self.encode(isChanged ? list : [], id: id, isChanged: isChanged))
    }

    /// Responds with the evaluation of one flag, for server SDKs that evaluate remotely.
    func postOne(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let input = try request.withBody { bytes throws(CoreError) in
            try BucketeerEvaluationRequest(JSONInput.parse(bytes))
        }
        guard !input.featureID.isEmpty else { throw CoreError(.invalid, "`featureId` is required", at: ["featureId"]) }
        let key = Identifier(input.featureID)
        var notFound = BucketeerError(.notFound, "no flag has the key '\(input.featureID)' and the tag '\(input.tag)'")
        notFound.mayBeStale = true
        guard let project = try projects.project(ofAny: call), let flag = project.datafile.flag(key: key),
            input.tag.isEmpty || flag.isTagged(input.tag)
        else { throw notFound }
        let evaluations = try await evaluations(of: .flags([key]), for: input.user(project.schema), in: project)
        guard let evaluation = evaluations.first, let value = evaluation.bucketeerValue else {
            throw BucketeerError(.notFound, "the user has no variation of '\(input.featureID)'")
        }
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("evaluation")
        Self.append(evaluation, value, of: input.userID, to: &writer)
        writer.endObject()
        return .json(writer.finish())
    }

    /// Decides flags for a user in a project.
    private func evaluations(
        of subject: DecisionQuery.Subject, for user: User, in project: Project
    ) async throws -> [FlagEvaluation] {
        let query = try DecisionQuery(for: user, subject, options: .disableDecisionEvent)
            .usable(in: project, at: ["user", "data"])
        let decisions = try await decisions.decide(query, in: project)
        return decisions.flags.map { FlagEvaluation($0, decisions.project.datafile) }
    }

    // MARK: Responses

    /// Encodes the response of `/get_evaluations`.
    ///
    /// - Parameter list: the evaluations as an encoded array; empty for none.
    private static func encode(_ list: [UInt8], id: String, isChanged: Bool) -> [UInt8] {
        var writer = JSONWriter(capacity: list.count + 256)
        writer.beginObject()
        writer.member("state", "FULL")
        writer.key("evaluations")
        writer.beginObject()
        writer.member("id", id)
        writer.key("evaluations")
        writer.raw(list.isEmpty ? Array("[]".utf8) : list)
        writer.member(seconds: "createdAt", systemWallClock())
        // With forceUpdate the SDK discards all its evaluations, so nothing need be archived.
        writer.member("archivedFeatureIds", [])
        writer.member("forceUpdate", isChanged)
        writer.endObject()
        writer.member("userEvaluationsId", id)
        writer.endObject()
        return writer.finish()
    }

    /// Encodes evaluations as an array. A flag without a value is left out: the SDK then returns the default of its
    /// caller.
    private static func encode(_ evaluations: [FlagEvaluation], of userID: Identifier) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginArray()
        for evaluation in evaluations {
            if let value = evaluation.bucketeerValue { append(evaluation, value, of: userID, to: &writer) }
        }
        writer.endArray()
        return writer.finish()
    }

    /// Writes an evaluation.
    ///
    /// - Parameter value: the value as text; see ``FlagEvaluation/bucketeerValue``.
    private static func append(
        _ evaluation: FlagEvaluation, _ value: String, of userID: Identifier, to writer: inout JSONWriter
    ) {
        let version = Int32(clamping: evaluation.flagVersion)
        writer.beginObject()
        writer.member("id", "\(evaluation.flagKey):\(version):\(userID)")
        writer.member("featureId", evaluation.flagKey.string)
        writer.member("featureVersion", version)
        writer.member("userId", userID.string)
        // Never empty: some servers refuse events with an empty variation id, so some SDKs do not send them.
        writer.member("variationId", evaluation.variationID?.string ?? "default")
        writer.key("reason")
        writer.beginObject()
        writer.member("type", evaluation.reason.bucketeerName)
        writer.member("ruleId", evaluation.reason == .default ? "" : evaluation.ruleKey?.string ?? "")
        writer.endObject()
        writer.member("variationValue", value)
        writer.member("variationName", evaluation.variationKey?.string ?? "default")
        writer.endObject()
    }
}

/// The body of `/get_evaluations` and `/get_evaluation`:
/// `{"tag","user":{"id","data"},"userEvaluationsId","featureId",…}`. Unknown members are ignored, as the contract
/// requires.
private struct BucketeerEvaluationRequest: Sendable {
    /// The tag of the flags; empty for all flags.
    let tag: String
    let userID: Identifier
    /// The attributes of the user, all of them texts.
    let data: JSONObject
    /// The id of the evaluations that the SDK has; empty if it has none.
    let evaluationsID: String
    /// The key of the flag, for `/get_evaluation` only.
    let featureID: String

    init(_ body: JSONValue) throws(CoreError) {
        guard let object = body.object else {
            throw CoreError(.invalid, "a request must be an object; got \(body.kind)", at: [])
        }
        tag = try object.protobufText("tag")
        evaluationsID = try object.protobufText("userEvaluationsId")
        featureID = try object.protobufText("featureId")
        let place: JSONPointer = ["user"]
        guard let user = try object.protobufMessage("user") else {
            throw CoreError(.invalid, "`user` is required", at: place)
        }
        userID = try ProfileInput.checkUserID(
            try user.protobufText("id", in: place), at: place.appending("id"))
        data = try user.protobufMessage("data", in: place) ?? JSONObject()
        for member in data where member.value.string == nil {
            throw CoreError(
                .invalid, "`data` must have strings as values; got \(member.value.kind)",
                at: place.appending("data").appending(member.key))
        }
    }

    /// Returns the user with the data as attributes. The contract has only texts, so a text is parsed if the attribute
    /// is defined as a number or a boolean.
    func user(_ schema: AttributeSchema) -> User {
        var attributes = data
        for member in data {
            guard let text = member.value.string, let type = schema.attribute(Identifier(member.key))?.type else {
                continue
            }
            switch type {
            case .number:
                if let number = Double(text), number.isFinite { attributes[member.key] = .number(number) }
            case .boolean:
                if let bool = Bool(text) { attributes[member.key] = .bool(bool) }
            case .string, .country, .date, .time, .timestamp, .selection: break
            }
        }
        return User(id: userID, attributes: attributes)
    }
}

extension Flag {
    fileprivate func isTagged(_ tag: String) -> Bool {
        annotations.tags.contains(Identifier(tag))
    }
}

extension FlagEvaluation {
    /// The value as text, which is the only type in the contract; `nil` if there is none.
    fileprivate var bucketeerValue: String? {
        switch value {
        case nil, .some(.null): nil
        case .some(.string(let text)): text
        case .some(let value): String(decoding: value.encoded(), as: UTF8.self)
        }
    }
}

extension EvaluationReason {
    /// The name in `bucketeer.feature.Reason.Type`.
    fileprivate var bucketeerName: String {
        switch self {
        case .override, .whitelist, .requested: "TARGET"
        case .targeted, .experiment, .sticky, .holdout: "RULE"
        case .default: "DEFAULT"
        case .disabled: "OFF_VARIATION"
        }
    }
}
