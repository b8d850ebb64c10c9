import Bucketing
import HTTPServer

/// What `POST /v1/activate` is asked.
struct ActivateRequest: Sendable {
    enum Subject: Sendable {
        case experiment(Experiment)
        case flag(Flag)
        case unknownExperiment(Identifier)
        case unknownFlag(Identifier)
    }

    let user: User
    /// Each key once.
    let subjects: [Subject]
    let sendsImpressions: Bool
    /// Which entries are wanted; `nil` for all.
    let enabled: Bool?

    init(_ request: AgentRequest) throws(AgentError) {
        let attributes = try request.body.userAttributes()
        user = User(id: try request.body.userID(), attributes: attributes)
        subjects = try Self.subjects(request.query, request.project.datafile)
        sendsImpressions = request.query.value("disableTracking") != "true"
        switch request.query.value("enabled") {
        case "true": enabled = true
        case "false": enabled = false
        default: enabled = nil
        }
    }

    /// The Agent keeps what it is asked by key: of an experiment and a flag with one key the last counts.
    private static func subjects(_ query: AgentQuery, _ datafile: Datafile) throws(AgentError) -> [Subject] {
        var subjects: [Subject] = []
        var places: [Identifier: Int] = [:]
        func add(_ key: Identifier, _ subject: Subject) {
            if let place = places[key] {
                subjects[place] = subject
            } else {
                places[key] = subjects.count
                subjects.append(subject)
            }
        }
        for type in query.values("type") {
            switch type {
            case "experiment": for experiment in datafile.experimentsBesideRules { add(experiment.key, .experiment(experiment)) }
            case "feature": for flag in datafile.flags { add(flag.key, .flag(flag)) }
            default: throw AgentError(.badRequest, "type \(JSONWriter.quoted(type)) not supported")
            }
        }
        for key in query.values("experimentKey").map({ Identifier($0) }) {
            add(key, datafile.agentExperiment(key: key).map { .experiment($0) } ?? .unknownExperiment(key))
        }
        for key in query.values("featureKey").map({ Identifier($0) }) {
            add(key, datafile.flag(key: key).map { .flag($0) } ?? .unknownFlag(key))
        }
        return subjects
    }
}
