import Bucketing
import HTTPServer
import JSON
import Storage

/// `POST /v1/decide`: what a user gets of one flag, of several, or of all. The profile is read once, and written at
/// the most once, for all of them.
struct DecideEndpoint {
    let decider: Decider
    let exposures: Exposures
    let figures: DecisionFigures

    func post(_ request: AgentRequest, _ receiver: @escaping AgentAnswer.Receiver) throws(AgentError) {
        let asked = try DecideRequest(request)
        let exposures = exposures
        let figures = figures
        let usesProfile = !asked.options.contains(.ignoreUserProfileService)
        decider.decide(for: asked.user, in: request.project, usesProfile: usesProfile) { project, stored in
            let service = DecisionService(datafile: project.datafile)
            return switch asked.form {
            case .all: service.decideAll(for: asked.user, stored: stored, options: asked.options)
            case .one, .several: service.decide(asked.flagKeys, for: asked.user, stored: stored, options: asked.options)
            }
        } completion: { result in
            switch result {
            case .success(let decided):
                let (decisions, project) = (decided.result.value, decided.project)
                for decision in decisions { figures.count(decision.origin) }
                exposures.record(decided.result.impressions, of: asked.user, in: project)
                receiver(Self.answer(decisions, to: asked, project.datafile))
            case .failure(let error):
                receiver(AgentError(error).answer)
            }
        }
    }

    private static func answer(_ decisions: [Decision], to asked: DecideRequest, _ datafile: Datafile) -> AgentAnswer {
        var encoder = DecisionEncoder(asked.user, datafile)
        if asked.form != .one { encoder.writer.beginArray() }
        for decision in decisions {
            encoder.append(decision)
            guard encoder.writer.count <= AgentAnswer.longest else { return AgentAnswer.tooLong }
        }
        if !asked.options.contains(.enabledFlagsOnly) {
            for key in asked.flagKeys where datafile.flag(key: key) == nil { encoder.append(unknownFlag: key) }
        }
        if asked.form != .one { encoder.writer.endArray() }
        return AgentAnswer(.ok, encoder.writer)
    }
}
