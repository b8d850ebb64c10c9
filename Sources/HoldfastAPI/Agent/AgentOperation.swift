import HTTPServer

/// One operation of the Agent's API: a line of the route table that a batch can call as well.
struct AgentOperation {
    typealias Handler = (AgentRequest, @escaping AgentAnswer.Receiver) throws(AgentError) -> Void

    let method: Method
    let path: String
    let scope: Token.Scope
    private let handler: Handler

    init(_ method: Method, _ path: String, scope: Token.Scope, _ handler: @escaping Handler) {
        self.method = method
        self.path = path
        self.scope = scope
        self.handler = handler
    }

    /// - Parameter receiver: called once, on any thread.
    func perform(_ request: AgentRequest, _ receiver: @escaping AgentAnswer.Receiver) {
        do throws(AgentError) {
            try handler(request, receiver)
        } catch {
            receiver(error.answer)
        }
    }

    func route(_ projects: ProjectView) -> APIRoute {
        func handle(_ request: borrowing Request, _ call: Call) {
            do throws(AgentError) {
                perform(try AgentRequest(request, call.caller, projects)) { call.answer($0.response) }
            } catch {
                call.answer(error.answer.response)
            }
        }
        return APIRoute(
            method, path, scope: .token(scope), readsQuery: true, refusal: { AgentError($0).answer.response }, handle)
    }
}
