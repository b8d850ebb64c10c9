import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /predict/{rule_id}`: the variation of a user in an experiment of a contextual bandit (`cmab`). SDKs and the
/// Agent request it after they have found the user to be in the audience and the traffic.
///
/// The variation is sticky. Users are split by the weights of the experiment, which its bandit changes by the results.
/// The weights are the same for all users, so `attributes` and `cmabUUID` are not used.
struct SDKPredictionEndpoint {
    let decisions: StickyDecisionService
    let projects: ProjectView
    /// The maximum number of instances in a request.
    let limit: Int

    func post(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let sdkKey = try request.query(knowing: ["sdk_key"])["sdk_key"] ?? request.sdkKey
        guard let name = request.parameter(0) else { throw CoreError(.invalid, "the id in the path must be UTF-8") }
        let body = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let ruleID = Identifier(name)
        let users = try users(of: body, ruleID)
        let project = try project(with: ruleID, sdkKey, call.access)
        let variations = try await call.results(of: users.indices, projects) { index, _ in
            let query = DecisionQuery(for: users[index], .prediction(ruleID))
            return try Self.variation(in: await decisions.decide(query, in: project), ruleID)
        }
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("predictions")
        writer.beginArray()
        for variation in variations {
            writer.beginObject()
            writer.member("variation_id", try variation.get().string)
            writer.endObject()
        }
        writer.endArray()
        writer.endObject()
        return .json(writer.finish())
    }

    /// Returns the project whose datafile has the experiment of a rule.
    ///
    /// - Throws: 404 if no project has the experiment, 409 if several projects have it.
    private func project(
        with ruleID: Identifier, _ sdkKey: String?, _ access: ProjectAccess
    ) throws(CoreError) -> Project {
        let all = try projects.projects(sdkKey: sdkKey, projectID: nil, for: access)
        let found = all.filter { $0.datafile.experiment(id: ruleID) != nil }
        guard let project = found.first else { throw .undefined("no experiment has the id '\(ruleID)'") }
        guard found.count == 1 else {
            let names = found.map(\.sdkKey).joined(separator: ", ")
            throw CoreError(
                .conflict,
                "the projects \(names) have an experiment with the id '\(ruleID)'; add ?sdk_key=KEY to the URL")
        }
        return project
    }

    /// Reads the users of the `instances`.
    private func users(of body: JSONValue, _ ruleID: Identifier) throws(CoreError) -> [User] {
        guard let object = body.object else {
            throw CoreError(.invalid, "the body must be an object; got \(body.kind)", at: [])
        }
        guard let instances = object["instances"]?.array, (1...limit).contains(instances.count) else {
            let found = object["instances"].map { $0.array.map { "\($0.count)" } ?? $0.kind } ?? "nothing"
            throw CoreError(
                .invalid, "`instances` must be an array of 1 to \(limit) users; got \(found)", at: ["instances"])
        }
        var users: [User] = []
        for (index, instance) in instances.enumerated() {
            let place = JSONPointer().appending("instances").appending(index)
            guard let instance = instance.object else {
                throw CoreError(.invalid, "an instance must be an object; got \(instance.kind)", at: place)
            }
            let id = try instance.text("visitorId", in: place)
            users.append(User(id: try ProfileInput.checkUserID(id, at: place.appending("visitorId"))))
            if let given = try instance.optionalText("experimentId", in: place), Identifier(given) != ruleID {
                throw CoreError(
                    .invalid, "`experimentId` must be the id in the path, '\(ruleID)'; got '\(given)'",
                    at: place.appending("experimentId"))
            }
        }
        return users
    }

    /// Returns the id of the decided variation.
    private static func variation(in decisions: Decisions, _ ruleID: Identifier) throws(CoreError) -> Identifier {
        // A newer datafile may lack the experiment.
        guard let decision = decisions.experiments.first else {
            throw .undefined("no experiment has the id '\(ruleID)'")
        }
        guard let variation = decision.variation else {
            throw CoreError(.conflict, "the experiment '\(decision.experiment.key)' enrolls nobody new at present")
        }
        return variation.id
    }
}
