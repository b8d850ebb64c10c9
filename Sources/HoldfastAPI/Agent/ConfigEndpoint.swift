import Bucketing
import HTTPServer

/// `GET /v1/config`: the experiments, flags, attributes, audiences and events of the datafile in force, the way the
/// SDKs present them to an application.
///
/// Belongs to one event loop.
final class ConfigEndpoint {
    /// The last answer for each project, and the version of the datafile that it is about.
    private var answers: [String: (version: Int64, answer: AgentAnswer)] = [:]

    func get(_ request: AgentRequest, _ receiver: @escaping AgentAnswer.Receiver) {
        let project = request.project
        if let known = answers[project.sdkKey], known.version == project.version { return receiver(known.answer) }
        var encoder = ConfigEncoder(project.datafile)
        encoder.appendConfig()
        let answer = AgentAnswer(.ok, encoder.writer)
        answers[project.sdkKey] = (project.version, answer)
        receiver(answer)
    }
}
