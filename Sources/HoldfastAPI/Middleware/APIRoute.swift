import HTTPServer

/// One line of Holdfast's route table. Who may call it is part of the line, so that no route can be without.
struct APIRoute {
    enum Scope: Equatable {
        /// For everybody: says nothing of users.
        case none
        case token(Token.Scope)
    }

    private enum Handler {
        case buffered((borrowing Request, Call) -> Void)
        case streamed((borrowing Request, Call) -> (any BodyReceiver)?)
    }

    let method: Method
    let pattern: String
    let scope: Scope
    /// Whether it is served also under overload, for those who watch the server.
    let isVital: Bool
    private let changesState: Bool?
    private let respondsLater: Bool
    /// Whether the handler sees to ``Preconditions``.
    private let isConditional: Bool
    /// Whether the handler looks at the query; where none does, a parameter is refused.
    private let readsQuery: Bool
    /// The answer to who is not admitted.
    private let refusal: (Problem) -> Response
    private let handler: Handler

    init(
        _ method: Method, _ pattern: String, scope: Scope, isVital: Bool = false, changesState: Bool? = nil,
        respondsLater: Bool = false, isConditional: Bool = false, readsQuery: Bool = false, refusal: @escaping (Problem) -> Response = \.response,
        _ handle: @escaping (borrowing Request, Call) -> Void
    ) {
        self.method = method
        self.pattern = pattern
        self.scope = scope
        self.isVital = isVital
        self.changesState = changesState
        self.respondsLater = respondsLater
        self.isConditional = isConditional
        // Who watches a server may ask for what no cache has.
        self.readsQuery = readsQuery || scope == .none || isVital
        self.refusal = refusal
        handler = .buffered(handle)
    }

    init(
        _ method: Method, _ pattern: String, scope: Scope, readsQuery: Bool = false,
        streamed handle: @escaping (borrowing Request, Call) -> (any BodyReceiver)?
    ) {
        self.method = method
        self.pattern = pattern
        self.scope = scope
        isVital = false
        changesState = nil
        respondsLater = false
        isConditional = false
        self.readsQuery = readsQuery
        refusal = \.response
        handler = .streamed(handle)
    }

    /// The line as the server takes it, behind the check of the caller's token.
    func route(gate: AccessGate) -> Route {
        switch handler {
        case .buffered(let handle):
            return Route(
                method, pattern, isVital: isVital, changesState: changesState, respondsLater: respondsLater,
                .buffered { [self] request, responder in
                    switch admit(request, responder, gate) {
                    case .success(let admission): handle(request, Call(responder: responder, admission: admission))
                    case .failure(let problem): responder.send(refusal(problem))
                    }
                })
        case .streamed(let handle):
            return Route(
                method, pattern,
                .streamed { [self] request, responder in
                    switch admit(request, responder, gate) {
                    case .success(let admission):
                        return handle(request, Call(responder: responder, admission: admission))
                    case .failure(let problem):
                        responder.send(refusal(problem))
                        return nil
                    }
                })
        }
    }

    /// What admits the caller, or why the request is refused.
    private func admit(
        _ request: borrowing Request, _ responder: Responder, _ gate: AccessGate
    ) -> Result<Admission, Problem> {
        let admission: Admission
        switch gate.admit(request, to: scope) {
        case .success(let found):
            admission = found
            if let token = found.token { responder.note(caller: token.name) }
        case .failure(let refusal):
            if let token = refusal.token { responder.note(caller: token.name) }
            return .failure(refusal.problem)
        }
        if method != .get, let coding = request.field("content-encoding"), coding.lowercased() != "identity" {
            // RFC 9110 §8.4
            var problem = Problem(.unsupportedMediaType, "the body must be sent without Content-Encoding; got '\(coding)'")
            problem.fields = [("Accept-Encoding", "identity")]
            return .failure(problem)
        }
        // A condition that is not looked at must not be taken for one that holds.
        if [.put, .patch, .delete].contains(method), !isConditional, !Preconditions(request).isEmpty {
            return .failure(
                Problem(.notImplemented, "this path does not support If-Match and If-None-Match; nothing was done"))
        }
        if !readsQuery {
            do throws(Problem) {
                _ = try request.query(knowing: [])
            } catch {
                return .failure(error)
            }
        }
        return .success(admission)
    }
}
