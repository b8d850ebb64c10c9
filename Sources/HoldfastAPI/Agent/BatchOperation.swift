import Bucketing
import HTTPServer
import JSON

/// One operation of a batch, as it is asked: a request with nothing but what it says itself.
struct BatchOperation {
    let id: String
    let method: String
    let url: String
    let body: JSONValue
    let parameters: [(name: String, value: String)]
    private let headers: [(name: String, value: String)]

    init(_ value: JSONValue) throws(AgentError) {
        let operation = try AgentBody(value)
        id = try operation.text("operationID")
        let method = try operation.text("method")
        self.method = method.isEmpty ? "GET" : method
        url = try operation.text("url")
        body = try operation.object("body").map { .object($0) } ?? .null
        parameters = try operation.textMap("params")
        headers = try operation.textMap("headers")
    }

    /// - Parameter name: in lower case.
    func header(_ name: String) -> String? {
        headers.first { $0.name.lowercased() == name }?.value
    }

    /// - Parameters:
    ///   - target: what ``url`` says.
    ///   - caller: who may do this, by which batch.
    func request(
        _ target: TargetText, _ method: Method, _ projects: ProjectView, from caller: Caller
    ) throws(AgentError) -> AgentRequest {
        let project = try projects.project(ofHeader: header("x-optimizely-sdk-key"))
        let query = AgentQuery(target.queryItems + parameters)
        guard method == .post else {
            return AgentRequest(project: project, query: query, body: .empty, caller: caller)
        }
        try AgentBody.checkContentType(header("content-type"))
        return AgentRequest(project: project, query: query, body: try AgentBody(body), caller: caller)
    }
}
