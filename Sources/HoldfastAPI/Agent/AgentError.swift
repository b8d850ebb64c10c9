import Bucketing
import HTTPServer
import JSON
import Storage

/// Why an Agent operation cannot be done, as the Agent's clients are told: `{"error":"…"}`.
struct AgentError: Error {
    let status: Status
    let text: String
    /// Further fields of the answer.
    let fields: [(name: StaticString, value: String)]

    init(_ status: Status, _ text: String) {
        self.status = status
        self.text = text
        fields = []
    }

    init(_ problem: Problem) {
        status = problem.status
        text = problem.detail
        fields = problem.fields
    }

    init(_ error: StorageError) {
        self.init(Problem(error))
    }

    static let malformedBody = AgentError(.badRequest, "error parsing request body")
    static let missingUserID = AgentError(.badRequest, "missing \"userId\" in request payload")

    var answer: AgentAnswer {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("error", text)
        writer.endObject()
        return AgentAnswer(status, writer, fields: fields)
    }
}
