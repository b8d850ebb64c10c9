import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /v1/audit`: the changes that admins made, the newest first. `?after=ID` continues with older ones.
struct AuditEndpoint {
    let store: any StoreSession

    private static let parameters = [
        "author", "action", "user_id", "target", "since", "until", "after", "limit",
    ]

    /// Responds with a page of entries that match all parameters.
    func get(_ request: borrowing Request, _ call: Call) async throws -> Response {
        var query = try Self.query(request.query(knowing: Self.parameters))
        let limit = query.limit
        // One more entry than requested shows whether there are further ones.
        query.limit += 1
        let entries = try await store.read(.auditEntries(query))
        return .json(Self.encode(Array(entries.prefix(limit)), isLast: entries.count <= limit))
    }

    /// Parses the parameters.
    private static func query(_ given: [String: String]) throws(CoreError) -> AuditQuery {
        var query = AuditQuery(limit: try Request.pageLimit(given))
        query.author = given["author"]
        if let userID = given["user_id"] { query.userID = try ProfileInput.checkUserID(userID, at: nil) }
        query.target = given["target"]
        if let name = given["action"] {
            guard let action = AuditAction(rawValue: name) else {
                let known = AuditAction.allCases.map(\.rawValue).joined(separator: ", ")
                throw CoreError(.invalid, "`action` must be one of \(known); got '\(name)'")
            }
            query.action = action
        }
        query.since = try moment("since", given)
        query.until = try moment("until", given)
        if let text = given["after"] {
            guard let id = Int64(text), id > 0 else {
                throw CoreError(.invalid, "`after` must be the `next` of an earlier response; got '\(text)'")
            }
            query.after = id
        }
        return query
    }

    /// Returns a parameter that is a time; `nil` if it is absent.
    private static func moment(_ name: String, _ given: [String: String]) throws(CoreError) -> Instant? {
        guard let text = given[name] else { return nil }
        guard let moment = Instant(rfc3339: text) else {
            throw CoreError(.invalid, "`\(name)` must be an RFC 3339 time such as 2026-01-31T12:00:00Z; got '\(text)'")
        }
        return moment
    }

    /// Encodes a page of entries.
    ///
    /// - Parameter isLast: whether there are no older entries.
    private static func encode(_ entries: [AuditEntry], isLast: Bool) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.key("entries")
        writer.beginArray()
        for entry in entries { append(entry, to: &writer) }
        writer.endArray()
        writer.key("next")
        if let last = entries.last, !isLast { writer.integer(last.id) } else { writer.null() }
        writer.endObject()
        return writer.finish()
    }

    /// Writes an entry. ``PersonalExportEndpoint`` writes entries in the same format.
    static func append(_ entry: AuditEntry, to writer: inout JSONWriter) {
        func appendDetail(_ key: StaticString, _ json: [UInt8]?) {
            writer.key(key)
            if let json { writer.raw(json) } else { writer.null() }
        }
        writer.beginObject()
        writer.member("id", entry.id)
        writer.member("recorded_at", entry.recordedAt.rfc3339)
        writer.member("author", entry.author.name)
        writer.member("action", entry.action)
        writer.member("user_id", entry.userID?.string)
        writer.member("target", entry.target)
        writer.member("request_id", entry.author.requestID)
        appendDetail("before", entry.before)
        appendDetail("after", entry.after)
        writer.endObject()
    }
}
