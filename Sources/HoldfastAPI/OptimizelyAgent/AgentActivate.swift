import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/activate`: a user's variations of experiments and flags, in the older API of the Agent, from before
/// `/v1/decide`. One read and at most one write of the profile serve all of them.
struct ActivateEndpoint {
    let decisions: StickyDecisionService
    let notifications: AgentNotifications

    func post(_ request: AgentRequest) async throws -> AgentResponse {
        let input = try ActivateRequest(request)
        if !request.isUpToDate, input.namesUnknown(request.project.datafile) { throw AgentError.undefined }
        let decided = try await decisions.decide(input.query, in: request.project)
        notifications.send(activated: decided, of: input.user)
        return Self.response(Self.activations(decided, of: input), to: input)
    }

    /// Returns an entry for each subject of the request, in their order.
    private static func activations(_ decisions: Decisions, of input: ActivateRequest) -> [Activation] {
        var experiments = decisions.experiments.makeIterator()
        var flags = decisions.flags.makeIterator()
        return input.subjects(in: decisions.project.datafile).compactMap { subject in
            switch subject {
            case .known(.experiment): experiments.next().map { Activation($0) }
            case .known(.flag): flags.next().map { Activation($0) }
            case .unknownExperiment(let key): Activation(unknownExperiment: key)
            case .unknownFlag(let key): Activation(unknownFlag: key)
            }
        }
    }

    private static func response(_ activations: [Activation], to input: ActivateRequest) -> AgentResponse {
        var writer = JSONWriter()
        writer.beginArray()
        for activation in activations where input.enabled == nil || input.enabled == activation.isEnabled {
            activation.append(for: input.user, to: &writer)
        }
        writer.endArray()
        return AgentResponse(.ok, writer)
    }
}

/// The request of `POST /v1/activate`.
struct ActivateRequest: Sendable {
    /// An experiment or flag of the query, as it was found in a datafile.
    enum Subject: Sendable {
        case known(DecisionQuery.Activated)
        case unknownExperiment(Identifier)
        case unknownFlag(Identifier)
    }

    /// An element of the query, as the request names it.
    private enum Name: Sendable {
        case allExperiments
        case allFlags
        case experiment(Identifier)
        case flag(Identifier)
    }

    let user: User
    private let names: [Name]
    private let sendsImpressions: Bool
    /// Whether only enabled entries (`true`), or only entries that are not enabled (`false`), are in the response;
    /// `nil` for all entries.
    let enabled: Bool?

    init(_ request: AgentRequest) throws(AgentError) {
        let attributes = try request.body.userAttributes(in: request.project)
        user = User(id: try request.body.userID(), attributes: attributes)
        names = try Self.names(request.query)
        sendsImpressions = request.query.value("disableTracking") != "true"
        switch request.query.value("enabled") {
        case "true": enabled = true
        case "false": enabled = false
        default: enabled = nil
        }
    }

    /// The query for the decisions. It finds the subjects in the datafile that is used for the decisions, which may be
    /// newer than that of the request.
    var query: DecisionQuery {
        let activation = DecisionQuery.Subject.activation { [self] datafile in
            subjects(in: datafile).compactMap { if case .known(let subject) = $0 { subject } else { nil } }
        }
        return DecisionQuery(for: user, activation, options: sendsImpressions ? [] : .disableDecisionEvent)
    }

    /// Parses `type`, `experimentKey` and `featureKey`.
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

    /// Whether the query names an experiment or a flag that the datafile lacks.
    func namesUnknown(_ datafile: Datafile) -> Bool {
        names.contains { name in
            switch name {
            case .allExperiments, .allFlags: false
            case .experiment(let key): datafile.agentExperiment(key: key) == nil
            case .flag(let key): datafile.flag(key: key) == nil
            }
        }
    }

    /// Finds the experiments and flags of the query in a datafile, each key once. The Agent collects subjects by key.
    /// So if an experiment and a flag have the same key, the later one counts.
    func subjects(in datafile: Datafile) -> [Subject] {
        var subjects: [Subject] = []
        var indices: [Identifier: Int] = [:]
        func add(_ key: Identifier, _ subject: Subject) {
            if let index = indices[key] {
                subjects[index] = subject
            } else {
                indices[key] = subjects.count
                subjects.append(subject)
            }
        }
        for name in names {
            switch name {
            case .allExperiments:
                for experiment in datafile.experimentsBesideRules {
                    add(experiment.key, .known(.experiment(experiment)))
                }
            case .allFlags:
                for flag in datafile.flags { add(flag.key, .known(.flag(flag))) }
            case .experiment(let key):
                add(key, datafile.agentExperiment(key: key).map { .known(.experiment($0)) } ?? .unknownExperiment(key))
            case .flag(let key):
                add(key, datafile.flag(key: key).map { .known(.flag($0)) } ?? .unknownFlag(key))
            }
        }
        return subjects
    }
}

/// One entry of the response of `POST /v1/activate`.
struct Activation: Sendable {
    var experimentKey: Identifier = ""
    var flagKey: Identifier = ""
    var variationKey: Identifier = ""
    /// `experiment` or `feature`; empty if the key is unknown.
    var type = ""
    var variables: [VariableValue] = []
    var isEnabled = false
    var error: String?

    init(unknownExperiment key: Identifier) {
        experimentKey = key
        error = "experimentKey not found"
    }

    init(unknownFlag key: Identifier) {
        flagKey = key
        error = "featureKey not found"
    }

    /// Describes an experiment. It counts as enabled if the user has a variation.
    init(_ decision: ExperimentDecision) {
        type = "experiment"
        experimentKey = decision.experiment.key
        variationKey = decision.variation?.key ?? ""
        isEnabled = decision.variation != nil
    }

    /// Describes a flag. Like the Agent, it does not name targeted rollouts.
    init(_ decision: Decision) {
        type = "feature"
        flagKey = decision.flagKey
        if decision.ruleType != .rollout {
            experimentKey = decision.ruleKey ?? ""
            variationKey = decision.variation?.key ?? ""
        }
        variables = decision.variables
        isEnabled = decision.isEnabled
    }

    func append(for user: User, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("userId", user.id.string)
        writer.member("experimentKey", experimentKey.string)
        writer.member("featureKey", flagKey.string)
        writer.member("variationKey", variationKey.string)
        writer.member("type", type)
        writer.agentVariables(variables)
        writer.member("enabled", isEnabled)
        if let error { writer.member("error", error) }
        writer.endObject()
    }
}
