import Chronology
import HTTPServer
import Storage

/// Checks tokens and scopes for one event loop. It takes a lock only on the first request after a change of tokens.
final class AccessGate {
    private let control: AccessControl
    private let refusals: RefusalLog
    private let localAccess: LocalAccess
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
            return try admit(
                secret: credential(), to: scope, onBehalfOf: request.field(OnBehalfOf.fieldName))
        } catch {
            refusals.record(error, path: request.path, method: request.method, of: RequestOrigin(request))
            throw error
        }
    }

    /// Admits the caller of an operation within a request, such as one of a batch.
    ///
    /// - Throws: 401 or 403, after logging the refusal.
    func admit(
        secret: Substring?, to scope: APIRoute.Scope, path: String, method: Method, of origin: RequestOrigin
    ) throws(AccessRefusal) -> Admission {
        refresh()
        guard !isOpen else { return admission(by: nil, to: scope) }
        do throws(AccessRefusal) {
            return try admit(secret: secret, to: scope)
        } catch {
            refusals.record(error, path: path, method: method, of: origin)
            throw error
        }
    }

    /// - Parameter onBehalfOf: the caller of an edge that forwards a request.
    private func admit(
        secret: Substring?, to scope: APIRoute.Scope, onBehalfOf: @autoclosure () -> String? = nil
    ) throws(AccessRefusal) -> Admission {
        guard let secret else {
            throw AccessRefusal(
                unauthorized("a token is required; send 'Authorization: Bearer SECRET' or 'X-API-Key: SECRET'"))
        }
        var found: Token?
        for token in tokens where token.hasSecret(secret.utf8) { found = token }
        if found == nil, let identity, IdentityProvider.isToken(secret) {
            do throws(Problem) {
                found = try verified.token(secret, by: identity) { name in tokens.contains { $0.name == name } }
            } catch {
                if identity.mayNeedNewerKeys(secret), control.requestKeys() || identity.lacksKeys {
                    throw AccessRefusal(
                        Problem(.serviceUnavailable, "the keys of the identity provider are being fetched; try again"))
                }
                throw AccessRefusal(unauthorized(error.detail, error: "invalid_token"))
            }
        }
        guard let found else { throw AccessRefusal(unauthorized("the token is unknown", error: "invalid_token")) }
        if let expiry = found.expiresAt, found.hasExpired {
            let detail =
                "the secret must not have expired; this one of the token '\(found.name)' expired at \(expiry.rfc3339)"
            throw AccessRefusal(unauthorized(detail, error: "invalid_token"), token: found)
        }
        if found.scope == .edge, let text = onBehalfOf() {
            guard let caller = OnBehalfOf(text) else {
                throw AccessRefusal(Problem(.badRequest, OnBehalfOf.rule), token: found)
            }
            found.noteUse()
            let token = Token(caller, of: found)
            guard scope.admits(token) else {
                throw AccessRefusal(Problem(.forbidden, scope.refusal(of: token)), token: token)
            }
            return admission(by: token, to: scope)
        }
        guard scope.admits(found) else {
            throw AccessRefusal(Problem(.forbidden, scope.refusal(of: found)), token: found)
        }
        found.noteUse()
        return admission(by: found, to: scope)
    }

    /// Returns the secret of the token that made the ticket; `nil` if there is none, or the ticket has expired.
    func secret(ofTicket ticket: String) -> Substring? {
        refresh()
        let now = systemWallClock()
        return tokens.first { StreamTicket.isValid(ticket, of: $0, at: now) }?.credential
    }

    private var isOpen: Bool { tokens.isEmpty && identity == nil }

    private func admission(by token: Token?, to scope: APIRoute.Scope) -> Admission {
        Admission(token: token, scope: scope, control: control, generation: generation, approval: approval)
    }

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

@available(*, unavailable) extension AccessGate: Sendable {}
