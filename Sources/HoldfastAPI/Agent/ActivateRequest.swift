import Bucketing
import HTTPServer
import JSON

/// What `POST /v1/activate` is asked.
struct ActivateRequest: Sendable {
    enum Subject: Sendable {
        case experiment(Experiment)
        case flag(Flag)
        case unknownExperiment(Identifier)
        case unknownFlag(Identifier)
    }

    /// What the query asks for, before it is looked up in a datafile.
    private enum Name: Sendable {
        case allExperiments
        case allFlags
        case experiment(Identifier)
        case flag(Identifier)
    }

    let user: User
    private let names: [Name]
    let sendsImpressions: Bool
    /// Which entries are wanted; `nil` for all.
    let enabled: Bool?

    init(_ request: AgentRequest) throws(AgentError) {
        let attributes = try request.body.userAttributes()
        user = User(id: try request.body.userID(), attributes: attributes)
        names = try Self.names(request.query)
        sendsImpressions = request.query.value("disableTracking") != "true"
        switch request.query.value("enabled") {
        case "true": enabled = true
        case "false": enabled = false
        default: enabled = nil
        }
    }

    private static func names(_ query: AgentQuery) throws(AgentError) -> [Name] {
        var names: [Name] = []
        for type in query.values("type") {
            switch type {
            case "experiment": names.append(.allExperiments)
            case "feature": names.append(.allFlags)
            default: throw AgentError(.badRequest, "type \(JSONWriter.quoted(type)) not supported")
            }
        }
        names += query.values("experimentKey").map { .experiment(Identifier($0)) }
        names += query.values("featureKey").map { .flag(Identifier($0)) }
        return names
    }

    /// Each key once. The Agent keeps what it is asked by key: of an experiment and a flag with one key the last counts.
    func subjects(in datafile: Datafile) -> [Subject] {
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
        for name in names {
            switch name {
            case .allExperiments:
                for experiment in datafile.experimentsBesideRules { add(experiment.key, .experiment(experiment)) }
            case .allFlags:
                for flag in datafile.flags { add(flag.key, .flag(flag)) }
            case .experiment(let key):
                add(key, datafile.agentExperiment(key: key).map { .experiment($0) } ?? .unknownExperiment(key))
            case .flag(let key):
                add(key, datafile.flag(key: key).map { .flag($0) } ?? .unknownFlag(key))
            }
        }
        return subjects
    }
}
