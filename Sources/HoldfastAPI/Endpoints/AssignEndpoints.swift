import Bucketing
import HTTPServer
import JSON
import Storage
internal import Synchronization

/// `/v1/assign`: the variation of a user in one experiment, given on the first asking and kept from then on.
struct AssignEndpoints {
    let decider: Decider
    let projects: ProjectView
    let figures: DecisionFigures
    /// Requests in one array.
    let limit: Int

    /// One request or an array of them; answers one or an array in the same order. In an array an element that
    /// cannot be answered is `{"problem":{…}}` and does not keep the others from theirs.
    func post(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let body = try request.withBody { bytes throws(Problem) in try ProfileBody.parse(bytes) }
            if let list = body.array {
                assign(list, call)
            } else {
                decide(try AssignRequest(body, at: []), enrols: true) { Self.send($0, to: call) }
            }
        } catch {
            call.fail(error)
        }
    }

    /// The same without enrolling: a user who has no variation yet is told the one that an assignment would give, and
    /// nothing is stored. The query has `user_id`, `experiment`, `sdk_key`, and `attributes` as JSON.
    func get(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let query = try request.query(knowing: ["user_id", "experiment", "sdk_key", "attributes"])
            var object = JSONObject()
            for (name, value) in query { object[name] = .string(value) }
            if let text = query["attributes"] {
                object["attributes"] = try ProfileBody.parse(parameter: "attributes", text)
            }
            decide(try AssignRequest(.object(object), at: []), enrols: false) { Self.send($0, to: call) }
        } catch {
            call.fail(error)
        }
    }

    private static func send(_ result: Result<[UInt8], Problem>, to call: Call) {
        switch result {
        case .success(let json): call.answer(json: json)
        case .failure(let problem): call.fail(problem)
        }
    }

    private func assign(_ list: [JSONValue], _ call: Call) {
        guard list.count <= limit else {
            return call.fail(Problem(.badRequest, "the array must have at most \(limit) elements; got \(list.count)", at: []))
        }
        guard !list.isEmpty else { return call.answer(json: Array("[]".utf8)) }
        let answers = AssignAnswers(count: list.count, call)
        call.forEach(list.indices) { index in
            do throws(Problem) {
                let request = try AssignRequest(list[index], at: JSONPointer().appending(index))
                decide(request, enrols: true) { answers.add($0, at: index) }
            } catch {
                answers.add(.failure(error), at: index)
            }
        }
    }

    private func decide(
        _ request: AssignRequest, enrols: Bool, _ completion: @escaping @Sendable (Result<[UInt8], Problem>) -> Void
    ) {
        do throws(Problem) {
            let project = try projects.project(named: request.sdkKey)
            guard request.experiment(in: project) != nil else { throw request.unknownExperiment }
            decider.decide(for: request.user, in: project, storesAssignments: enrols) { project, stored in
                Self.decide(request, in: project, stored)
            } completion: { [figures] result in
                switch result {
                case .success(let decided):
                    guard let decision = decided.result.value else { return completion(.failure(request.unknownExperiment)) }
                    figures.count(decision.origin)
                    completion(.success(Self.encode(decision)))
                case .failure(let error):
                    completion(.failure(Problem(error)))
                }
            }
        } catch {
            completion(.failure(error))
        }
    }

    /// `nil` when the datafile does not have the experiment.
    private static func decide(
        _ request: AssignRequest, in project: Project, _ stored: StickyAssignments
    ) -> DecisionResult<ExperimentDecision?> {
        guard let experiment = request.experiment(in: project) else { return DecisionResult(value: nil) }
        let decision = DecisionService(datafile: project.datafile)
            .assign(experiment, for: request.user, stored: stored, options: .includeReasons)
        return DecisionResult(
            value: decision, newAssignments: decision.newAssignment.map { [$0] } ?? [],
            passesOverAssignment: decision.passesOverAssignment)
    }

    private static func encode(_ decision: ExperimentDecision) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("experiment_id", decision.experiment.id.string)
        writer.member("experiment_key", decision.experiment.key.string)
        writer.member("variation_id", decision.variation?.id.string)
        writer.member("variation_key", decision.variation?.key.string)
        writer.member("source", decision.origin.rawValue)
        writer.member("reasons", decision.reasons)
        writer.endObject()
        return writer.finish()
    }
}

/// `{"user_id","experiment","attributes"?,"sdk_key"?}`
private struct AssignRequest: Sendable {
    let place: JSONPointer
    let user: User
    /// A key or an id.
    let experiment: Identifier
    let sdkKey: String?

    private static let members = ["user_id", "experiment", "attributes", "sdk_key"]

    init(_ value: JSONValue, at place: JSONPointer) throws(Problem) {
        self.place = place
        let object = try value.object("a request", knowing: Self.members, at: place)
        user = try ProfileBody.user(of: object, at: place)
        experiment = Identifier(try object.text("experiment", in: place))
        sdkKey = try object.optionalText("sdk_key", in: place)
    }

    func experiment(in project: Project) -> Experiment? {
        project.datafile.experiment(keyOrID: experiment)
    }

    var unknownExperiment: Problem {
        Problem(.notFound, "no experiment has the key or id '\(experiment)'", at: place.appending("experiment"))
    }
}

/// The answers to an array as they come in, from any thread.
private final class AssignAnswers: Sendable {
    private struct State {
        var answers: [[UInt8]?]
        var missing: Int
    }

    private let state: Mutex<State>
    private let call: Call

    init(count: Int, _ call: Call) {
        state = Mutex(State(answers: Array(repeating: nil, count: count), missing: count))
        self.call = call
    }

    func add(_ result: Result<[UInt8], Problem>, at index: Int) {
        let json =
            switch result {
            case .success(let json): json
            case .failure(let problem): Self.encode(problem)
            }
        let all = state.withLock { state in
            state.answers[index] = json
            state.missing -= 1
            return state.missing == 0 ? state.answers : nil
        }
        guard let all else { return }
        var writer = JSONWriter()
        writer.beginArray()
        for answer in all { writer.raw(answer ?? []) }
        writer.endArray()
        call.answer(json: writer.finish())
    }

    private static func encode(_ problem: Problem) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("problem")
        problem.append(to: &writer)
        writer.endObject()
        return writer.finish()
    }
}
