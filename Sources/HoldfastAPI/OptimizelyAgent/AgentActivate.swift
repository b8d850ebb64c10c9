import Bucketing
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `POST /v1/activate`: a user's variations of experiments and flags, in the Agent's API from before `decide`. One read
/// and at most one write of the profile serve all of them.
struct ActivateEndpoint {
    let decisions: StickyDecisionService
    let exposures: ExposureRecorder
    let metrics: DecisionMetrics

    func post(_ request: AgentRequest, _ receiver: @escaping AgentResponse.Receiver) throws(AgentError) {
        let input = try ActivateRequest(request)
        let exposures = exposures
        let metrics = metrics
        decisions.decide(for: input.user, in: request.project) { project, stored in
            Self.activate(input, stored, project)
        } completion: { result in
            switch result {
            case .success(let decided):
                let activations = decided.result.value
                for source in activations.compactMap(\.source) { metrics.count(source) }
                exposures.record(decided.result.impressions, of: input.user, in: decided.project)
                receiver(Self.response(activations, to: input))
            case .failure(let error):
                receiver(AgentError(error).response)
            }
        }
    }

    private static func activate(
        _ input: ActivateRequest, _ stored: StickyAssignments, _ project: Project
    ) -> DecisionResult<[Activation]> {
        let service = DecisionService(datafile: project.datafile)
        let user = input.user.cachingConditions()
        let options: DecideOptions = input.sendsImpressions ? [] : .disableDecisionEvent
        var activations: [Activation] = []
        var impressions: [Impression] = []
        var assignments: [NewAssignment] = []
        var hasStaleAssignment = false
        for subject in input.subjects(in: project.datafile) {
            switch subject {
            case .unknownExperiment(let key): activations.append(Activation(unknownExperiment: key))
            case .unknownFlag(let key): activations.append(Activation(unknownFlag: key))
            case .experiment(let experiment):
                let decision = service.variation(of: experiment, for: user, stored: stored, options: options)
                activations.append(Activation(decision))
                if let new = decision.newAssignment { assignments.append(new) }
                hasStaleAssignment = hasStaleAssignment || decision.hasStaleAssignment
                if input.sendsImpressions, let variation = decision.variation {
                    impressions.append(
                        Impression(activating: experiment, variation: variation, source: decision.source))
                }
            case .flag(let flag):
                let result = service.decide([flag.key], for: user, stored: stored, options: options)
                activations += result.value.map { Activation($0) }
                assignments += result.newAssignments
                hasStaleAssignment = hasStaleAssignment || result.hasStaleAssignment
                impressions += result.impressions
            }
        }
        return DecisionResult(
            value: activations, impressions: impressions, newAssignments: eachExperimentOnce(assignments),
            hasStaleAssignment: hasStaleAssignment)
    }

    /// Removes duplicates: an experiment that is requested both by its key and through a flag is decided twice, with
    /// the same result.
    private static func eachExperimentOnce(_ assignments: [NewAssignment]) -> [NewAssignment] {
        var seen: Set<Identifier> = []
        return assignments.filter { seen.insert($0.experimentID).inserted }
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
    enum Subject: Sendable {
        case experiment(Experiment)
        case flag(Flag)
        case unknownExperiment(Identifier)
        case unknownFlag(Identifier)
    }

    /// An element of the query, before the look-up in a datafile.
    private enum Name: Sendable {
        case allExperiments
        case allFlags
        case experiment(Identifier)
        case flag(Identifier)
    }

    let user: User
    private let names: [Name]
    let sendsImpressions: Bool
    /// Restricts the response to entries that are enabled, or not enabled; `nil` for all.
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

    /// Looks up what the query names, each key once. The Agent collects subjects by key, so if an experiment and a flag
    /// share a key, the later one counts.
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
    /// The source of the variation; `nil` if nothing was decided.
    var source: DecisionSource?

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
        source = decision.source
    }

    /// Describes a flag. Like the Agent, it does not name delivery rules.
    init(_ decision: Decision) {
        type = "feature"
        flagKey = decision.flagKey
        if decision.ruleType != .rollout {
            experimentKey = decision.ruleKey ?? ""
            variationKey = decision.variation?.key ?? ""
        }
        variables = decision.variables
        isEnabled = decision.isEnabled
        source = decision.source
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
