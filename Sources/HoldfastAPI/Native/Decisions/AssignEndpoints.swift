import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/assign`: atomic get-or-assign of a user's variation in one experiment. The assignment is sticky: later requests
/// get the same variation, even if the traffic allocation changes.
struct AssignEndpoints {
    let decisions: StickyDecisionService
    let projects: ProjectView
    /// The maximum number of requests in an array.
    let limit: Int

    /// Assigns for one request, or for an array of them with the responses in the same order. In an array, a request
    /// that fails gets `{"problem":{…}}` and does not affect the others.
    func post(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let body = try request.withBody { bytes throws(CoreError) in try JSONInput.parse(bytes) }
        let sdkKey = request.sdkKey
        guard let list = body.array else {
            // A single request is usually served by callbacks, without the cost of a task.
            let single = try AssignRequest(body, sdkKey: sdkKey, at: [], call)
            let project = try project(of: single)
            return decisions.respond(to: try single.query(enrolls: true, in: project), in: project, call) { decisions in
                .json(try single.decision(of: decisions).encoded())
            } error: { error in
                Problem(error).response(on: call.pattern)
            }
        }
        guard list.count <= limit else {
            throw CoreError(.invalid, "the array must have at most \(limit) elements; got \(list.count)", at: [])
        }
        call.responder.send {
            do {
                return .json(try await responses(to: list, sdkKey, call))
            } catch {
                return Problem(error).response(on: call.pattern)
            }
        }
    }

    /// Returns the responses to an array of requests, as a JSON array.
    ///
    /// - Parameter sdkKey: the project of requests that name none.
    private func responses(to list: [JSONValue], _ sdkKey: String?, _ call: Call) async throws -> [UInt8] {
        let results = try await call.results(of: list.indices, projects) { index, call in
            let request = try AssignRequest(list[index], sdkKey: sdkKey, at: JSONPointer().appending(index), call)
            return try await decision(on: request, enrolls: true).encoded()
        }
        var writer = JSONWriter()
        writer.beginArray()
        for result in results {
            switch result {
            case .success(let json): writer.raw(json)
            case .failure(let error): Self.append(Problem(error), to: &writer)
            }
        }
        writer.endArray()
        return writer.finish()
    }

    /// Returns the user's variation or, if there is none, the one that an assignment would give. Stores nothing. The
    /// query has `user_id`, `anonymous_id`, `experiment`, `sdk_key`, and `attributes` as JSON.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["user_id", "anonymous_id", "experiment", "sdk_key", "attributes"])
        var object = JSONObject()
        for (name, value) in query { object[name] = .string(value) }
        if let text = query["attributes"] {
            object["attributes"] = try JSONInput.parse(parameter: "attributes", text)
        }
        let assignRequest = try AssignRequest(.object(object), sdkKey: request.sdkKey, at: [], call)
        return .json(try await decision(on: assignRequest, enrolls: false).encoded())
    }

    /// Returns the decision about one request.
    ///
    /// - Parameter enrolls: whether a new assignment is stored.
    private func decision(on request: AssignRequest, enrolls: Bool) async throws -> ExperimentDecision {
        let project = try project(of: request)
        return try request.decision(
            of: await decisions.decide(request.query(enrolls: enrolls, in: project), in: project))
    }

    /// Returns the project of a request.
    ///
    /// - Throws: 404 if there is no such project, or if it does not have the experiment.
    private func project(of request: AssignRequest) throws(CoreError) -> Project {
        let project = try projects.project(named: request.sdkKey, for: request.access)
        guard project.datafile.experiment(keyOrID: request.experiment) != nil else {
            throw request.unknownExperiment(in: project.datafile)
        }
        return project
    }

    private static func append(_ problem: Problem, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("problem")
        problem.append(to: &writer)
        writer.endObject()
    }
}

/// One request for an assignment: `{"user_id","anonymous_id"?,"experiment","attributes"?,"sdk_key"?}`
private final class AssignRequest: Sendable {
    /// The place of the request in the body, for errors.
    let place: JSONPointer
    let user: User
    let anonymousID: Identifier?
    /// The key or id of the experiment.
    let experiment: Identifier
    let sdkKey: String?
    /// The projects that the caller may use.
    let access: ProjectAccess

    private static let members = ["user_id", "anonymous_id", "experiment", "attributes", "sdk_key"]

    /// - Parameter sdkKey: the project of a request that names none.
    init(_ value: JSONValue, sdkKey: String?, at place: JSONPointer, _ call: Call) throws(CoreError) {
        self.place = place
        access = call.access
        let object = try value.object("a request", knowing: Self.members, at: place)
        user = try ProfileInput.user(of: object, at: place)
        anonymousID = try ProfileInput.anonymousID(of: object, at: place, mayNameAny: call.mayNameAnyUser)
        experiment = Identifier(try object.text("experiment", in: place))
        self.sdkKey = try object.optionalText("sdk_key", in: place) ?? sdkKey
    }

    func query(enrolls: Bool, in project: Project) throws(CoreError) -> DecisionQuery {
        try DecisionQuery(
            for: user, anonymousID: anonymousID, .experiment(experiment), options: .includeReasons,
            storesAssignments: enrolls, requiresStorage: true
        ).usable(in: project, at: place.appending("attributes"))
    }

    func decision(of decisions: Decisions) throws(CoreError) -> ExperimentDecision {
        // A newer datafile may lack the experiment.
        guard let decision = decisions.experiments.first else {
            throw unknownExperiment(in: decisions.project.datafile)
        }
        return decision
    }

    func unknownExperiment(in datafile: Datafile) -> CoreError {
        .undefinedExperiment(experiment, in: datafile, at: place.appending("experiment"))
    }
}
