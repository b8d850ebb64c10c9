import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /v1/tokens`: the tokens of the token file, without their secrets. `GET /v1/whoami`: the caller's own.
struct TokensEndpoint {
    let control: AccessControl
    let isEdge: Bool

    func get(_ request: borrowing Request, _ call: Call) -> Response {
        .json(["tokens": .array(control.tokens.map { .object($0.description) })])
    }

    /// Whom the server takes the caller for, and what the caller may do, so that a page offers nothing else.
    func whoami(_ request: borrowing Request, _ call: Call) -> Response {
        let token = call.admission.token
        let scopes = Token.Scope.allCases.filter { token?.scope.allows($0) ?? true }
        return .json([
            "name": .string(token?.name ?? Author.anonymousName),
            "scope": token.map { .string("\($0.scope)") } ?? .null,
            "scopes": .array(scopes.map { .string("\($0)") }),
            "projects": token?.projects.sdkKeys.map { .array($0.map { .string($0) }) } ?? .null,
            "expires_at": token?.expiresAt.map { .string($0.rfc3339) } ?? .null,
            // An edge does not know its upstream's.
            "approvals": isEdge ? .null : .integer(control.approvals),
        ])
    }
}

extension Token {
    /// What the response and the audit log have in common comes first; `last_used_at` is that of this process.
    fileprivate var description: JSONObject {
        var description = auditDescription
        description["projects"] = auditDescription["projects"] ?? .null
        description["expires_at"] = auditDescription["expires_at"] ?? .null
        description["last_used_at"] = lastUsedAt.map { .string($0.rfc3339) } ?? .null
        return description
    }
}
