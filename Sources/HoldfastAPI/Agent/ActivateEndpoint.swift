import Bucketing
import HTTPServer
import JSON
import Storage

/// `POST /v1/activate`: the user's variations of experiments and flags, as the Agent answered before there was
/// `decide`. The profile is read once, and written at the most once, for all of them.
struct ActivateEndpoint {
    let decider: Decider
    let exposures: Exposures
    let figures: DecisionFigures

    func post(_ request: AgentRequest, _ receiver: @escaping AgentAnswer.Receiver) throws(AgentError) {
        let asked = try ActivateRequest(request)
        let exposures = exposures
        let figures = figures
        decider.decide(for: asked.user, in: request.project) { project, stored in
            Self.activate(asked, stored, project)
        } completion: { result in
            switch result {
            case .success(let decided):
                let activations = decided.result.value
                for origin in activations.compactMap(\.origin) { figures.count(origin) }
                exposures.record(decided.result.impressions, of: asked.user, in: decided.project)
                receiver(Self.answer(activations, to: asked))
            case .failure(let error):
                receiver(AgentError(error).answer)
            }
        }
    }

    private static func activate(
        _ asked: ActivateRequest, _ stored: StickyAssignments, _ project: Project
    ) -> DecisionResult<[Activation]> {
        let service = DecisionService(datafile: project.datafile)
        let user = asked.user.rememberingAnswers()
        let options: DecideOptions = asked.sendsImpressions ? [] : .disableDecisionEvent
        var activations: [Activation] = []
        var impressions: [Impression] = []
        var assignments: [NewAssignment] = []
        var passesOverAssignment = false
        for subject in asked.subjects(in: project.datafile) {
            switch subject {
            case .unknownExperiment(let key): activations.append(Activation(unknownExperiment: key))
            case .unknownFlag(let key): activations.append(Activation(unknownFlag: key))
            case .experiment(let experiment):
                let decision = service.variation(of: experiment, for: user, stored: stored, options: options)
                activations.append(Activation(decision))
                if let new = decision.newAssignment { assignments.append(new) }
                passesOverAssignment = passesOverAssignment || decision.passesOverAssignment
                if asked.sendsImpressions, let variation = decision.variation {
                    impressions.append(
                        Impression(activating: experiment, variation: variation, origin: decision.origin))
                }
            case .flag(let flag):
                let result = service.decide([flag.key], for: user, stored: stored, options: options)
                activations += result.value.map { Activation($0) }
                assignments += result.newAssignments
                passesOverAssignment = passesOverAssignment || result.passesOverAssignment
                impressions += result.impressions
            }
        }
        return DecisionResult(
            value: activations, impressions: impressions, newAssignments: eachExperimentOnce(assignments),
            passesOverAssignment: passesOverAssignment)
    }

    /// An experiment that is asked for by itself and through a flag is decided twice, in the same way.
    private static func eachExperimentOnce(_ assignments: [NewAssignment]) -> [NewAssignment] {
        var seen: Set<Identifier> = []
        return assignments.filter { seen.insert($0.experimentID).inserted }
    }

    private static func answer(_ activations: [Activation], to asked: ActivateRequest) -> AgentAnswer {
        var writer = JSONWriter()
        writer.beginArray()
        for activation in activations where asked.enabled == nil || asked.enabled == activation.isEnabled {
            activation.append(for: asked.user, to: &writer)
        }
        writer.endArray()
        return AgentAnswer(.ok, writer)
    }
}
