import HTTPServer

/// Decides who may call what, for one event loop: without a lock, but for the moments after a change of tokens.
final class AccessGate {
    private let control: AccessControl
    let refusals: RefusalLog
    private var generation: UInt64 = 0
    private var tokens: [Token] = []

    init(_ control: AccessControl, refusals: RefusalLog) {
        self.control = control
        self.refusals = refusals
    }

    /// What admits the caller, or why the caller is refused, which is logged.
    func admit(_ request: borrowing Request, to scope: APIRoute.Scope) -> Result<Admission, AccessRefusal> {
        guard case .token(let needed) = scope else { return .success(admission(by: nil, to: scope)) }
        refresh()
        guard !tokens.isEmpty else { return .success(admission(by: nil, to: scope)) }
        let result = admit(authorization: request.field("authorization"), to: needed)
        if case .failure(let refusal) = result {
            refusals.record(refusal, path: request.path, method: request.method, of: RequestOrigin(request))
        }
        return result
    }

    /// - Parameter authorization: the value of the `Authorization` field.
    func admit(authorization: String?, to needed: Token.Scope) -> Result<Admission, AccessRefusal> {
        refresh()
        guard !tokens.isEmpty else { return .success(admission(by: nil, to: .token(needed))) }
        guard let secret = authorization.flatMap(bearerSecret) else {
            return .failure(AccessRefusal(unauthorized("a token is required; send 'Authorization: Bearer SECRET'")))
        }
        var found: Token?
        for token in tokens where token.hasSecret(secret.utf8) { found = token }
        guard let found else {
            return .failure(AccessRefusal(unauthorized("the token is unknown", error: "invalid_token")))
        }
        guard found.scope.allows(needed) else {
            let detail = "the scope \(needed) is required; the token '\(found.name)' has the scope \(found.scope)"
            return .failure(AccessRefusal(Problem(.forbidden, detail), token: found))
        }
        return .success(admission(by: found, to: .token(needed)))
    }

    private func admission(by token: Token?, to scope: APIRoute.Scope) -> Admission {
        Admission(token: token, scope: scope, control: control, generation: generation)
    }

    private func refresh() {
        let current = control.currentGeneration
        guard current != generation else { return }
        generation = current
        tokens = control.tokens
    }

    /// RFC 6750 §2.1; the scheme's name has no case (RFC 9110 §11.1).
    private func bearerSecret(_ value: String) -> Substring? {
        guard value.utf8.count > 7, value.prefix(7).lowercased() == "bearer " else { return nil }
        return value.dropFirst(7).drop { $0 == " " }
    }

    /// - Parameter error: as RFC 6750 §3.1 has it; none when there was no token.
    private func unauthorized(_ detail: String, error: String? = nil) -> Problem {
        var problem = Problem(.unauthorized, detail)
        let challenge = "Bearer realm=\"holdfast\""
        problem.fields = [("WWW-Authenticate", error.map { "\(challenge), error=\"\($0)\"" } ?? challenge)]
        return problem
    }
}

/// Why a caller is not admitted.
struct AccessRefusal: Error {
    let problem: Problem
    /// The caller's, if it is known.
    let token: Token?

    init(_ problem: Problem, token: Token? = nil) {
        self.problem = problem
        self.token = token
    }
}

@available(*, unavailable) extension AccessGate: Sendable {}
