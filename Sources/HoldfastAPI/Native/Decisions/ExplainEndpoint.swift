import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /v1/profiles/{user_id}/experiments/{experiment}/explain`: why the user gets a variation or none, step by step.
/// Stores nothing.
struct ExplainEndpoint {
    let decisions: StickyDecisionService
    let projects: ProjectView

    /// Responds with the decision and its steps. The query may have:
    ///
    /// - `sdk_key`: the project, instead of the header.
    /// - `at`: a time in the past. The decision then uses the datafile that was active at this time.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let userID = try request.userID()
        guard let name = request.parameter(1) else {
            throw CoreError(.invalid, "the experiment in the path must be UTF-8")
        }
        let query = try request.query(knowing: ["at", "sdk_key"])
        var time: Instant?
        if let text = query["at"] {
            time = Instant(rfc3339: text)
            guard time != nil else {
                throw CoreError(.invalid, "`at` must be an RFC 3339 time such as 2026-01-31T12:00:00Z; got '\(text)'")
            }
        }
        let project = try projects.project(named: query["sdk_key"] ?? request.sdkKey, for: call.access)
        guard call.isUpToDate || time != nil || project.datafile.experiment(keyOrID: Identifier(name)) != nil else {
            throw CoreError.undefinedExperiment(Identifier(name), in: project.datafile)
        }
        let explanation = try await decisions.explain(
            Identifier(name), for: userID, in: project, at: time, showingValues: call.readsAttributes)
        return .json(Self.encode(explanation, of: userID))
    }

    private static func encode(_ explanation: Explanation, of userID: Identifier) -> [UInt8] {
        let experiment = explanation.experiment
        let decision = explanation.decision
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("user_id", userID.string)
        writer.member("experiment_id", experiment.id.string)
        writer.member("experiment_key", experiment.key.string)
        writer.member("sdk_key", explanation.sdkKey)
        writer.key("datafile")
        writer.beginObject()
        writer.member("version", explanation.version)
        writer.member("revision", explanation.revision)
        writer.member("active", explanation.isActive)
        writer.endObject()
        writer.member("variation_id", decision.variation?.id.string)
        writer.member("variation_key", decision.variation?.key.string)
        writer.member("source", decision.source.rawValue)
        writer.key("steps")
        writer.beginArray()
        for step in explanation.steps { append(step, explanation.profile?[experiment.id], to: &writer) }
        writer.endArray()
        writer.member("reasons", decision.reasons)
        writer.endObject()
        return writer.finish()
    }

    /// Writes a step.
    ///
    /// - Parameter assignment: the user's assignment in the experiment. The step that uses it shows its source and
    ///   times.
    private static func append(_ step: DecisionStep, _ assignment: Assignment?, to writer: inout JSONWriter) {
        writer.beginObject()
        for member in step.json {
            writer.key(text: member.key)
            writer.value(member.value)
        }
        switch step {
        case .override(let held): append(held, assignment, to: &writer)
        case .storedAssignment(let held): append(held, assignment?.withoutOverride, to: &writer)
        default: break
        }
        writer.endObject()
    }

    /// Writes the source and times of an assignment, if the step uses it.
    private static func append(_ held: DecisionStep.HeldStep, _ assignment: Assignment?, to writer: inout JSONWriter) {
        if let assignment, held.name == assignment.variationID { ProfileJSON.appendOrigin(assignment, to: &writer) }
    }
}
