import Bucketing
import HTTPServer
import JSON

/// `POST /v1/evaluations`: what one user gets of every flag, for a client library to keep. Assignments that are made
/// on the way stick, as with `/v1/assign`; no exposure is recorded, since only the client knows when the user really
/// sees something.
struct EvaluationEndpoint {
    let decider: Decider
    let projects: ProjectView
    let figures: DecisionFigures

    /// Answers 304 to an `If-None-Match` that names what the client has already.
    func post(_ request: borrowing Request, _ call: Call) {
        let known = request.field("if-none-match")
        do throws(Problem) {
            let asked = try request.withBody { bytes throws(Problem) in try EvaluationRequest(ProfileBody.parse(bytes)) }
            let project = try projects.project(named: asked.sdkKey)
            let figures = figures
            decider.decide(for: asked.user, in: project) { project, stored in
                DecisionService(datafile: project.datafile)
                    .decideAll(for: asked.user, stored: stored, options: asked.options)
            } completion: { result in
                switch result {
                case .success(let decided):
                    let decisions = decided.result.value
                    for decision in decisions { figures.count(decision.origin) }
                    call.answer(json: Self.encode(decisions, of: asked.user, in: decided.project), unlessKnownAs: known)
                case .failure(let error):
                    call.fail(error)
                }
            }
        } catch {
            call.fail(error)
        }
    }

    private static func encode(_ decisions: [Decision], of user: User, in project: Project) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("user_id", user.id.string)
        writer.member("revision", project.datafile.revision)
        writer.key("evaluations")
        writer.beginArray()
        for decision in decisions { append(decision, project.datafile, to: &writer) }
        writer.endArray()
        writer.endObject()
        return writer.finish()
    }

    private static func append(_ decision: Decision, _ datafile: Datafile, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("flag_key", decision.flagKey.string)
        let experiment = decision.ruleType == .featureTest ? decision.ruleKey.flatMap(datafile.experiment(key:)) : nil
        writer.member("variation_key", decision.variation?.key.string)
        writer.member("variation_id", decision.variation?.id.string)
        writer.member("experiment_id", experiment?.id.string)
        writer.member("enabled", decision.isEnabled)
        writer.key("variables")
        writer.beginObject()
        for variable in decision.variables {
            writer.key(text: variable.key.string)
            writer.value(variable.value)
        }
        writer.endObject()
        writer.member("rule_key", decision.ruleKey?.string)
        writer.member("source", decision.origin.rawValue)
        if !decision.reasons.isEmpty { writer.member("reasons", decision.reasons) }
        writer.endObject()
    }
}

/// `{"user_id","attributes"?,"sdk_key"?,"include_reasons"?}`
private struct EvaluationRequest: Sendable {
    let user: User
    let sdkKey: String?
    let options: DecideOptions

    private static let members = ["user_id", "attributes", "sdk_key", "include_reasons"]

    init(_ value: JSONValue) throws(Problem) {
        let object = try value.object("a request", knowing: Self.members)
        user = try ProfileBody.user(of: object, at: [])
        sdkKey = try object.optionalText("sdk_key")
        var includesReasons = false
        if let value = object["include_reasons"], !value.isNull {
            guard let flag = value.bool else {
                throw Problem(
                    .badRequest, "`include_reasons` must be true or false; got \(value.kind)", at: ["include_reasons"])
            }
            includesReasons = flag
        }
        options = includesReasons ? [.disableDecisionEvent, .includeAllReasons] : .disableDecisionEvent
    }
}
