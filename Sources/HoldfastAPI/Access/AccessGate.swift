import Chronology
import HTTPServer
import Storage

/// Decides for one event loop whether a request may call a route: it finds the token by the request's secret, and
/// checks the token's scope and projects.
///
/// The gate keeps copies of the tokens and the identity provider of ``AccessControl``, so that it takes a lock only on
/// the first request after a change. A caller is admitted in one of four ways:
///
/// - The server is open: it has neither tokens nor an identity provider. ``LocalAccess`` protects it from web pages.
/// - The secret belongs to a token of the token file.
/// - The secret is a signed token of the identity provider, which stands for a person.
/// - The secret belongs to an edge, and the request names the edge's caller (``OnBehalfOf``), whose scope applies.
final class AccessGate {
    private let control: AccessControl
    private let refusals: RefusalLog
    private let localAccess: LocalAccess
    /// The generation of the copies; 0 before the first copy.
    private var generation: UInt64 = 0
    private var tokens: [Token] = []
    private var identity: IdentityProvider?
    private var verified = VerifiedTokens()
    /// The approval of the requests that are currently admitted; see ``LocalRequests``.
    var approval: Approval?

    init(_ control: AccessControl, refusals: RefusalLog, _ localAccess: LocalAccess) {
        self.control = control
        self.localAccess = localAccess
        self.refusals = refusals
    }

    // MARK: Admission

    /// Admits the caller of a request.
    ///
    /// - Throws: 401 or 403, after logging the refusal.
    func admit(
        _ request: borrowing Request, credential: @autoclosure () -> Substring?, to route: APIRoute
    ) throws(AccessRefusal) -> Admission {
        let scope = route.scope
        guard scope != .none else { return admission(by: nil, to: scope) }
        refresh()
        do throws(AccessRefusal) {
            guard !isOpen else {
                if let refusal = localAccess.refusal(of: request, to: route) { throw AccessRefusal(refusal) }
                return admission(by: nil, to: scope)
            }
            return try admitHolder(
                ofSecret: credential(), to: scope, onBehalfOf: request.field(OnBehalfOf.fieldName))
        } catch {
            refusals.record(error, path: request.path, method: request.method, of: RequestOrigin(request))
            throw error
        }
    }

    /// Admits the caller of one operation of a batch.
    ///
    /// - Throws: 401 or 403, after logging the refusal.
    func admitOperation(
        secret: Substring?, to scope: APIRoute.Scope, path: String, method: Method, of origin: RequestOrigin
    ) throws(AccessRefusal) -> Admission {
        refresh()
        // The route of the batch has already checked ``LocalAccess``.
        guard !isOpen else { return admission(by: nil, to: scope) }
        do throws(AccessRefusal) {
            return try admitHolder(ofSecret: secret, to: scope)
        } catch {
            refusals.record(error, path: path, method: method, of: origin)
            throw error
        }
    }

    /// Admits the holder of a secret. If the holder is an edge, admits the edge's caller, if the request names one.
    ///
    /// - Parameter onBehalfOf: the header field with the edge's caller; `nil` if the request has none.
    private func admitHolder(
        ofSecret secret: Substring?, to scope: APIRoute.Scope, onBehalfOf: @autoclosure () -> String? = nil
    ) throws(AccessRefusal) -> Admission {
        guard let secret else {
            throw AccessRefusal(
                unauthorized("a token is required; send 'Authorization: Bearer SECRET' or 'X-API-Key: SECRET'"))
        }
        let token = try findToken(withSecret: secret)
        if let expiry = token.expiresAt, token.hasExpired {
            let detail =
                "the secret must not have expired; this one of the token '\(token.name)' expired at \(expiry.rfc3339)"
            throw AccessRefusal(unauthorized(detail, error: "invalid_token"), token: token)
        }
        if token.scope == .edge, let text = onBehalfOf() {
            guard let caller = OnBehalfOf(text) else {
                throw AccessRefusal(Problem(.badRequest, OnBehalfOf.rule), token: token)
            }
            token.noteUse()
            return try admission(checking: Token(caller, of: token), for: scope)
        }
        let admission = try admission(checking: token, for: scope)
        token.noteUse()
        return admission
    }

    /// Returns the admission of a token's holder.
    ///
    /// - Throws: 403 if the token's scope or projects are not sufficient.
    private func admission(checking token: Token, for scope: APIRoute.Scope) throws(AccessRefusal) -> Admission {
        guard scope.admits(token) else {
            throw AccessRefusal(Problem(.forbidden, scope.refusal(of: token)), token: token)
        }
        return admission(by: token, to: scope)
    }

    /// - Parameter token: the token that is sufficient; `nil` if none is required.
    private func admission(by token: Token?, to scope: APIRoute.Scope) -> Admission {
        Admission(token: token, scope: scope, control: control, generation: generation, approval: approval)
    }

    // MARK: Tokens

    /// Returns the token of the token file with this secret, or else the person whom a signed token names.
    ///
    /// - Throws: 401 if the secret is unknown or a signed token is invalid; 503 while the keys of the identity provider
    ///   are being fetched.
    private func findToken(withSecret secret: Substring) throws(AccessRefusal) -> Token {
        var found: Token?
        // Compares with all tokens, so that the time does not reveal the position of the right one.
        for token in tokens where token.hasSecret(secret.utf8) { found = token }
        if let found { return found }
        guard let identity, IdentityProvider.isToken(secret) else {
            throw AccessRefusal(unauthorized("the token is unknown", error: "invalid_token"))
        }
        do throws(Problem) {
            return try verified.token(secret, by: identity) { name in tokens.contains { $0.name == name } }
        } catch {
            if identity.mayNeedNewerKeys(secret), control.requestKeys() || identity.lacksKeys {
                throw AccessRefusal(
                    Problem(.serviceUnavailable, "the keys of the identity provider are being fetched; try again"))
            }
            throw AccessRefusal(unauthorized(error.detail, error: "invalid_token"))
        }
    }

    /// Returns the secret of the token for which a ticket was made; `nil` if no token has made the ticket, or if the
    /// ticket has expired.
    func secret(ofTicket ticket: String) -> Substring? {
        refresh()
        let now = systemWallClock()
        return tokens.first { StreamTicket.isValid(ticket, of: $0, at: now) }?.credential
    }

    private var isOpen: Bool { tokens.isEmpty && identity == nil }

    /// Copies the tokens and the identity provider if they have been replaced.
    private func refresh() {
        let current = control.currentGeneration
        guard current != generation else { return }
        generation = current
        tokens = control.tokens
        identity = control.identity
        verified.removeAll()
    }

    /// - Parameter error: the error code of RFC 6750 §3.1; `nil` if the request had no token.
    private func unauthorized(_ detail: String, error: String? = nil) -> Problem {
        var problem = Problem(.unauthorized, detail)
        let challenge = "Bearer realm=\"holdfast\""
        problem.fields = [("WWW-Authenticate", error.map { "\(challenge), error=\"\($0)\"" } ?? challenge)]
        return problem
    }
}

@available(*, unavailable) extension AccessGate: Sendable {}

/// Why a caller is not admitted.
struct AccessRefusal: Error {
    let problem: Problem
    /// The caller's token, if it is known.
    let token: Token?

    init(_ problem: Problem, token: Token? = nil) {
        self.problem = problem
        self.token = token
    }
}

/// The token that admitted a request, and the scope that the route requires. A response that is still being sent when
/// tokens are replaced checks with ``isValid`` whether it may continue.
struct Admission: Sendable {
    /// The token; `nil` if the route or the server requires none.
    let token: Token?
    let scope: APIRoute.Scope
    let control: AccessControl
    /// The generation of ``AccessControl`` in which the token was found.
    let generation: UInt64
    /// The approval by which the request makes a proposed change; `nil` for other requests.
    let approval: Approval?

    static let revoked = Problem(.unauthorized, "the token is no longer valid")

    /// Whether the request would still be admitted: the token has not expired, and no replacement of the tokens or of
    /// the identity provider has removed or restricted it.
    var isValid: Bool {
        if let token, token.hasExpired { return false }
        guard control.currentGeneration != generation, scope != .none else { return true }
        // Something was replaced meanwhile. What is active now must still admit the caller.
        guard let token else { return control.isOpen }
        if let person = token.person { return control.identity?.admits(person) ?? false }
        if let edge = token.edge {
            return control.tokens.contains { $0.hasSecret(of: edge) && $0.scope == .edge }
        }
        return control.tokens.contains {
            $0.hasSecret(of: token) && $0.projects == token.projects && scope.admits($0)
        }
    }
}
