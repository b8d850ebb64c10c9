import HTTPServer
internal import Synchronization

/// Decides who may call what: with no tokens everybody may do everything (and the server listens on loopback only).
public final class AccessControl: Sendable {
    private let tokens: Mutex<[Token]>

    public init(tokens: [Token] = []) {
        self.tokens = Mutex(tokens)
    }

    /// Puts other tokens in force for requests from now on.
    public func replaceTokens(_ tokens: [Token]) {
        self.tokens.withLock { $0 = tokens }
    }

    public var isOpen: Bool {
        tokens.withLock { $0.isEmpty }
    }

    /// The name of the caller's token, or why the caller is refused.
    func admit(_ request: borrowing Request, to scope: APIRoute.Scope) -> Result<String?, Problem> {
        guard case .token(let needed) = scope else { return .success(nil) }
        guard !isOpen else { return .success(nil) }
        return admit(authorization: request.field("authorization"), to: needed)
    }

    /// - Parameter authorization: the value of the `Authorization` field.
    func admit(authorization: String?, to needed: Token.Scope) -> Result<String?, Problem> {
        let tokens = tokens.withLock { $0 }
        guard !tokens.isEmpty else { return .success(nil) }
        guard let secret = authorization.flatMap(bearerSecret) else {
            return .failure(unauthorized("this needs a token: send 'Authorization: Bearer SECRET'"))
        }
        var found: Token?
        for token in tokens where token.hasSecret(secret.utf8) { found = token }
        guard let found else { return .failure(unauthorized("the token is not known")) }
        guard found.scope >= needed else {
            return .failure(Problem(.forbidden, "the token '\(found.name)' has the scope \(found.scope), and this needs \(needed)"))
        }
        return .success(found.name)
    }

    /// RFC 6750 §2.1; the scheme's name has no case (RFC 9110 §11.1).
    private func bearerSecret(_ value: String) -> Substring? {
        guard value.utf8.count > 7, value.prefix(7).lowercased() == "bearer " else { return nil }
        return value.dropFirst(7).drop { $0 == " " }
    }

    private func unauthorized(_ detail: String) -> Problem {
        var problem = Problem(.unauthorized, detail)
        problem.fields = [("WWW-Authenticate", "Bearer realm=\"holdfast\"")]
        return problem
    }
}
