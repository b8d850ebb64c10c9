import HTTPServer
import JSON
import Storage

/// `GET /v1/tokens`: the tokens of the token file, without their secrets.
struct TokensEndpoint {
    let control: AccessControl

    func get(_ request: borrowing Request, _ call: Call) -> Response {
        .json(["tokens": .array(control.tokens.map { .object($0.description) })])
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
