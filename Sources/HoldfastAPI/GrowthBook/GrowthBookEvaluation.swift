import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /api/eval/{client_key}`: the values of all flags for one user. New assignments are stored, as by `/v1/decide`,
/// so the server makes bucketing sticky. Exposures are not recorded. Instead the response has the experiments for the
/// tracking callback of the SDK, which is called when a value is used.
///
/// SDKs expect features with rules. Each flag becomes a feature whose only rule forces the user's value.
struct GrowthBookEvaluation {
    let decisions: StickyDecisionService
    let projects: ProjectView

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let input = try request.withBody { bytes throws(CoreError) in
            try GrowthBookRequest(JSONInput.parse(bytes))
        }
        let project = try request.growthBookProject(projects, call)
        let forced = input.forcedFeatures
        let subject = DecisionQuery.Subject.chosenFlags { $0.flags.map(\.key).filter { forced[$0] == nil } }
        let query = try DecisionQuery(for: input.user, subject, options: .disableDecisionEvent).usable(in: project)
        var response = Response.json(Self.encode(try await decisions.decide(query, in: project), input))
        // Informs the JavaScript SDK that there is a stream of changes.
        response.fields = [("X-SSE-Support", "enabled")]
        return response
    }

    /// Encodes the values of all flags as features.
    private static func encode(_ decisions: Decisions, _ input: GrowthBookRequest) -> [UInt8] {
        let project = decisions.project
        var writer = JSONWriter(capacity: 512 + decisions.flags.count * 256)
        writer.beginObject()
        // Responses of GrowthBook repeat the status in the body.
        writer.member("status", 200)
        writer.key("features")
        writer.beginObject()
        for decision in decisions.flags {
            let evaluation = FlagEvaluation(decision, project.datafile)
            // Without a value the SDK returns the default of its caller.
            guard let value = evaluation.value, !value.isNull else { continue }
            appendFeature(evaluation.flagKey, value, to: &writer) { writer in
                appendTracks(of: evaluation, value, of: input.user, in: project.datafile, to: &writer)
            }
        }
        for flag in project.datafile.flags {
            if let value = input.forcedFeatures[flag.key] { appendFeature(flag.key, value, to: &writer) { _ in } }
        }
        writer.endObject()
        writer.member("experiments", [])
        writer.member("dateUpdated", project.storedAt.rfc3339)
        writer.endObject()
        return writer.finish()
    }

    /// Writes a feature whose only rule forces the value.
    ///
    /// - Parameter appendMembers: writes further members of the rule.
    private static func appendFeature(
        _ flagKey: Identifier, _ value: JSONValue, to writer: inout JSONWriter,
        _ appendMembers: (inout JSONWriter) -> Void
    ) {
        writer.key(text: flagKey.string)
        writer.beginObject()
        writer.key("defaultValue")
        writer.value(value)
        writer.key("rules")
        writer.beginArray()
        writer.beginObject()
        writer.key("force")
        writer.value(value)
        appendMembers(&writer)
        writer.endObject()
        writer.endArray()
        writer.endObject()
    }

    /// Writes the experiment that determined the value, if any, for the SDK's tracking callback.
    private static func appendTracks(
        of evaluation: FlagEvaluation, _ value: JSONValue, of user: User, in datafile: Datafile,
        to writer: inout JSONWriter
    ) {
        guard let experiment = evaluation.experimentID.flatMap({ datafile.experiment(id: $0) }),
            let index = experiment.variations.lastIndex(where: { $0.id == evaluation.variationID })
        else { return }
        writer.key("tracks")
        writer.beginArray()
        writer.beginObject()
        appendExperiment(experiment, index, value, to: &writer)
        appendResult(of: evaluation, index, value, of: user, to: &writer)
        writer.endObject()
        writer.endArray()
    }

    /// Writes the experiment, without the values of other variations.
    private static func appendExperiment(
        _ experiment: Experiment, _ index: Int, _ value: JSONValue, to writer: inout JSONWriter
    ) {
        writer.key("experiment")
        writer.beginObject()
        writer.member("key", experiment.key.string)
        writer.key("variations")
        writer.beginArray()
        for position in experiment.variations.indices {
            writer.value(position == index ? value : .object(JSONObject()))
        }
        writer.endArray()
        writer.endObject()
    }

    /// Writes how the user got the variation with an index.
    private static func appendResult(
        of evaluation: FlagEvaluation, _ index: Int, _ value: JSONValue, of user: User, to writer: inout JSONWriter
    ) {
        let isHashedByID = user.bucketingID == user.id
        writer.key("result")
        writer.beginObject()
        writer.member("featureId", evaluation.flagKey.string)
        writer.member("inExperiment", true)
        writer.member("hashUsed", evaluation.source == .bucketed || evaluation.source == .stored)
        writer.member("stickyBucketUsed", evaluation.source == .stored)
        writer.member("hashAttribute", isHashedByID ? "id" : User.bucketingIDAttribute)
        writer.member("hashValue", user.bucketingID.string)
        writer.member("variationId", index)
        if let key = evaluation.variationKey { writer.member("key", key.string) }
        writer.key("value")
        writer.value(value)
        writer.endObject()
    }
}

/// The body of a request: `{"attributes":{"id"?,…},"forcedFeatures"?:[[key,value],…]}`. Other members are ignored, such
/// as forced variations and the URL.
private struct GrowthBookRequest: Sendable {
    let user: User
    /// The values that the SDK forces, by the key of the flag, such as the overrides of a developer. No decision is
    /// made for these flags.
    let forcedFeatures: [Identifier: JSONValue]

    /// The maximum number of forced features in a request.
    private static let forcedFeatureLimit = 1_000

    init(_ body: JSONValue) throws(CoreError) {
        guard let object = body.object else {
            throw CoreError(.invalid, "a request must be an object; got \(body.kind)", at: [])
        }
        user = try Self.user(object)
        forcedFeatures = try Self.forcedFeatures(object)
    }

    /// Returns the user of the attributes, without an id if they have none.
    private static func user(_ object: JSONObject) throws(CoreError) -> User {
        let place: JSONPointer = ["attributes"]
        guard var attributes = object["attributes"]?.object else {
            throw CoreError(
                .invalid, "`attributes` must be an object; got \(object["attributes"]?.kind ?? "nothing")", at: place)
        }
        let id = place.appending("id")
        guard let value = attributes["id"], !value.isNull, value.string != "" else {
            attributes["id"] = nil
            return .unidentified(attributes: attributes)
        }
        guard let text = value.string ?? value.integer.map(String.init) else {
            throw CoreError(
                .invalid,
                "the attribute `id` must be the user's id, a string or a whole number; got "
                    + value.kind, at: id)
        }
        let userID = try ProfileInput.checkUserID(text, at: id)
        attributes["id"] = nil
        return User(id: userID, attributes: attributes)
    }

    /// Parses `forcedFeatures`.
    private static func forcedFeatures(_ object: JSONObject) throws(CoreError) -> [Identifier: JSONValue] {
        guard let value = object["forcedFeatures"], !value.isNull else { return [:] }
        let place: JSONPointer = ["forcedFeatures"]
        guard let list = value.array, list.count <= forcedFeatureLimit else {
            throw CoreError(
                .invalid,
                "`forcedFeatures` must be an array of at most \(forcedFeatureLimit) pairs; got "
                    + (value.array.map { "\($0.count)" } ?? value.kind), at: place)
        }
        var forced: [Identifier: JSONValue] = [:]
        for (index, element) in list.enumerated() {
            guard let pair = element.array, pair.count == 2, let key = pair[0].string else {
                throw CoreError(
                    .invalid, "a forced feature must be an array of its key and its value; got \(element.kind)",
                    at: place.appending(index))
            }
            forced[Identifier(key)] = pair[1]
        }
        return forced
    }
}
