import HTTPServer

/// `GET /v1/datafile`: the datafile in force, byte for byte as it was brought, with an ETag.
struct AgentDatafileEndpoint {
    func get(_ request: AgentRequest, _ receiver: @escaping AgentAnswer.Receiver) {
        receiver(AgentAnswer(unchanged: request.project.content, entityTag: request.project.entityTag))
    }
}
