import Bucketing
import HTTPServer
import JSON
import Storage

/// `POST /v1/override`: forces a variation on a user for a test, or no longer does, in all processes on the store.
/// The profile stays as it is.
struct OverrideEndpoint {
    let catalog: ProjectCatalog

    func post(_ request: AgentRequest, _ receiver: @escaping AgentAnswer.Receiver) throws(AgentError) {
        let asked = try OverrideRequest(request.body)
        let catalog = catalog
        let warning = asked.warning(in: request.project.datafile)
        catalog.store.setForcedVariation(
            asked.variationKey, experimentKey: asked.experimentKey, userID: asked.userID, sdkKey: request.project.sdkKey,
            by: request.caller.author
        ) { result in
            switch result {
            case .success(let former):
                Self.answer(asked, former, warning, after: catalog, receiver)
            case .failure(let error):
                receiver(AgentError(error).answer)
            }
        }
    }

    /// Answers when this process decides by it.
    private static func answer(
        _ asked: OverrideRequest, _ former: Identifier?, _ warning: String?, after catalog: ProjectCatalog,
        _ receiver: @escaping AgentAnswer.Receiver
    ) {
        catalog.refresh { result in
            switch result {
            case .success: receiver(asked.answer(former, warning))
            case .failure(let error): receiver(AgentError(error).answer)
            }
        }
    }
}

private struct OverrideRequest: Sendable {
    let userID: Identifier
    let experimentKey: Identifier
    /// `nil` takes the override back.
    let variationKey: Identifier?

    init(_ body: AgentBody) throws(AgentError) {
        let texts = (
            user: try body.text("userId"), experiment: try body.text("experimentKey"),
            variation: try body.text("variationKey")
        )
        guard !texts.user.isEmpty else { throw AgentError(.badRequest, "userId cannot be empty") }
        guard !texts.experiment.isEmpty else { throw AgentError(.badRequest, "experimentKey cannot be empty") }
        userID = try AgentBody.check(userID: texts.user)
        experimentKey = Identifier(texts.experiment)
        variationKey = texts.variation.isEmpty ? nil : Identifier(texts.variation)
    }

    /// What the datafile lacks; the override is kept nevertheless, for a datafile that has it.
    func warning(in datafile: Datafile) -> String? {
        guard let variationKey else { return nil }
        guard let experiment = datafile.agentExperiment(key: experimentKey) else {
            return "experimentKey not found in configuration"
        }
        return experiment.variation(key: variationKey) == nil ? "variationKey not found in configuration" : nil
    }

    func answer(_ former: Identifier?, _ warning: String?) -> AgentAnswer {
        var messages: [String] = []
        if variationKey == nil {
            messages.append(former == nil ? "no pre-existing override" : "removing previous override")
        } else {
            if let warning { messages.append(warning) }
            if former != nil { messages.append("updating previous override") }
        }
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("userId", userID.string)
        writer.member("experimentKey", experimentKey.string)
        writer.member("variationKey", variationKey?.string ?? "")
        writer.member("prevVariationKey", former?.string ?? "")
        if messages.isEmpty {
            writer.key("messages")
            writer.null()
        } else {
            writer.member("messages", messages)
        }
        writer.endObject()
        return AgentAnswer(.ok, writer)
    }
}
