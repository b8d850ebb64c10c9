import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `/v1/assign`: atomic get-or-assign of a user's variation in one experiment. The assignment is sticky.
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
        if let list = body.array {
            assign(list, sdkKey, call)
        } else {
            decide(try AssignRequest(body, sdkKey: sdkKey, at: [], call), enrolls: true, call) {
                Self.send($0, to: call)
            }
        }
    }

    /// Returns the user's variation or, if there is none, the one that an assignment would give. Stores nothing. The
    /// query has `user_id`, `anonymous_id`, `experiment`, `sdk_key`, and `attributes` as JSON.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let query = try request.query(knowing: ["user_id", "anonymous_id", "experiment", "sdk_key", "attributes"])
        var object = JSONObject()
        for (name, value) in query { object[name] = .string(value) }
        if let text = query["attributes"] {
            object["attributes"] = try JSONInput.parse(parameter: "attributes", text)
        }
        let asked = try AssignRequest(.object(object), sdkKey: request.sdkKey, at: [], call)
        decide(asked, enrolls: false, call) { Self.send($0, to: call) }
    }

    private static func send(_ result: Result<[UInt8], CoreError>, to call: Call) {
        switch result {
        case .success(let json): call.respond(json: json)
        case .failure(let error): call.fail(error)
        }
    }

    /// - Parameter sdkKey: the project of requests that name none.
    private func assign(_ list: [JSONValue], _ sdkKey: String?, _ call: Call) {
        guard list.count <= limit else {
            return call.fail(
                CoreError(.invalid, "the array must have at most \(limit) elements; got \(list.count)", at: []))
        }
        let responses = Join<[UInt8]>(list.count) { responses in
            var writer = JSONWriter()
            writer.beginArray()
            for response in responses { writer.raw(response) }
            writer.endArray()
            call.respond(json: writer.finish())
        }
        call.forEach(list.indices) { index in
            do throws(CoreError) {
                let request = try AssignRequest(
                    list[index], sdkKey: sdkKey, at: JSONPointer().appending(index), call)
                decide(request, enrolls: true, call) { result in
                    switch result {
                    case .success(let json): responses.set(json, at: index)
                    case .failure(let error): responses.set(Self.encode(error), at: index)
                    }
                }
            } catch {
                responses.set(Self.encode(error), at: index)
            }
        }
    }

    private func decide(
        _ request: AssignRequest, enrolls: Bool, _ call: Call,
        _ completion: @escaping @Sendable (Result<[UInt8], CoreError>) -> Void
    ) {
        do throws(CoreError) {
            let project = try projects.project(named: request.sdkKey)
            guard project.datafile.experiment(keyOrID: request.experiment) != nil else {
                throw request.unknownExperiment(in: project.datafile)
            }
            let query = DecisionQuery(
                for: request.user, beside: request.anonymousID, .experiment(request.experiment),
                options: .includeReasons, storesAssignments: enrolls, requiresStorage: true)
            decisions.decide(query, in: project) { result in
                switch result {
                case .success(let decisions):
                    // A newer datafile may lack the experiment.
                    guard let decision = decisions.experiments.first else {
                        return completion(.failure(request.unknownExperiment(in: decisions.project.datafile)))
                    }
                    completion(.success(Self.encode(decision)))
                case .failure(let error):
                    completion(.failure(CoreError(error)))
                }
            }
        } catch {
            guard error.concernsDefinitions, !call.isUpToDate else { return completion(.failure(error)) }
            call.updating(projects) { result in
                switch result {
                case .success(let call): decide(request, enrolls: enrolls, call, completion)
                case .failure(let error): completion(.failure(CoreError(error)))
                }
            }
        }
    }

    private static func encode(_ decision: ExperimentDecision) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("experiment_id", decision.experiment.id.string)
        writer.member("experiment_key", decision.experiment.key.string)
        writer.member("variation_id", decision.variation?.id.string)
        writer.member("variation_key", decision.variation?.key.string)
        writer.member("source", decision.source.rawValue)
        writer.member("reasons", decision.reasons)
        writer.endObject()
        return writer.finish()
    }

    private static func encode(_ error: CoreError) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("problem")
        Problem(error).append(to: &writer)
        writer.endObject()
        return writer.finish()
    }
}

/// `{"user_id","anonymous_id"?,"experiment","attributes"?,"sdk_key"?}`
private final class AssignRequest: Sendable {
    let place: JSONPointer
    let user: User
    let anonymousID: Identifier?
    /// A key or an id.
    let experiment: Identifier
    let sdkKey: String?

    private static let members = ["user_id", "anonymous_id", "experiment", "attributes", "sdk_key"]

    /// - Parameter sdkKey: the project of a request that names none.
    init(_ value: JSONValue, sdkKey: String?, at place: JSONPointer, _ call: Call) throws(CoreError) {
        self.place = place
        let object = try value.object("a request", knowing: Self.members, at: place)
        user = try ProfileInput.user(of: object, at: place)
        anonymousID = try ProfileInput.anonymousID(of: object, at: place, mayNameAny: call.mayNameAnyUser)
        experiment = Identifier(try object.text("experiment", in: place))
        self.sdkKey = try object.optionalText("sdk_key", in: place) ?? sdkKey
    }

    func unknownExperiment(in datafile: Datafile) -> CoreError {
        .undefinedExperiment(experiment, in: datafile, at: place.appending("experiment"))
    }
}
