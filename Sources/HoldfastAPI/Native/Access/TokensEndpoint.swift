import Chronology
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /v1/tokens`: the tokens of the token file, without their secrets. `GET /v1/whoami`: the name and permissions of
/// the caller.
struct TokensEndpoint {
    let control: AccessControl
    /// Whether this server is an edge.
    let isEdge: Bool

    /// Responds with all tokens.
    func get(_ request: borrowing Request, _ call: Call) -> Response {
        .json(["tokens": .array(control.tokens.map { .object($0.description) })])
    }

    /// Responds with the caller's name and permissions, so that a page can hide operations that the caller may not use.
    func whoami(_ request: borrowing Request, _ call: Call) -> Response {
        let token = call.admission.token
        let scopes = Token.Scope.allCases.filter { token?.scope.allows($0) ?? true }
        return .json([
            "name": .string(token?.name ?? Author.anonymousName),
            "scope": token.map { .string("\($0.scope)") } ?? .null,
            "scopes": .array(scopes.map { .string("\($0)") }),
            "projects": token?.projects.sdkKeys.map { .array($0.map { .string($0) }) } ?? .null,
            "expires_at": token?.expiresAt.map { .string($0.rfc3339) } ?? .null,
            // An edge does not know the number of approvals of its upstream.
            "approvals": isEdge ? .null : .integer(control.approvals),
        ])
    }
}

extension Token {
    /// The token as in the audit log, with `last_used_at` of this process.
    fileprivate var description: JSONObject {
        var description = auditDescription
        description["projects"] = auditDescription["projects"] ?? .null
        description["expires_at"] = auditDescription["expires_at"] ?? .null
        description["last_used_at"] = lastUsedAt.map { .string($0.rfc3339) } ?? .null
        return description
    }
}
