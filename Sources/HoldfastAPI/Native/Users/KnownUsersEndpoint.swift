import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// `GET /v1/users`: the users whose ids begin with a text, in the byte order of their ids; `GET /v1/users/recent`: the
/// users of the last exposures.
struct KnownUsersEndpoint {
    let store: any StoreSession

    /// The number of exposures that are read per user of a response, because a user may have several.
    private static let exposuresPerUser = 10

    func list(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["prefix", "after", "limit"])
        let limit = try Request.pageLimit(query)
        let after = try query["after"].map { text throws(CoreError) in try ProfileInput.checkUserID(text, at: nil) }
        // Databases do not accept a text with a NUL.
        let prefix = query["prefix"] ?? ""
        if !prefix.isEmpty { _ = try ProfileInput.checkUserID(prefix, at: nil) }
        // One user more than requested shows whether there is another page.
        let users = try await store.read(.knownUsers(prefix: prefix, after: after, limit: limit + 1))
        let page = users.prefix(limit)
        return .json([
            "users": .array(
                page.map { ["user_id": .string($0.userID.string), "assignments": .integer(Int64($0.assignments))] }),
            "next": users.count > limit ? page.last.map { .string($0.userID.string) } ?? .null : .null,
        ])
    }

    func recent(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let limit = try Request.pageLimit(request.query(knowing: ["limit"]))
        let exposures = try await store.read(.latestExposures(limit: limit * Self.exposuresPerUser))
        var known: Set<Identifier> = []
        let latest = exposures.map(\.exposure).filter { known.insert($0.userID).inserted }.prefix(limit)
        return .json([
            "users": .array(
                latest.map {
                    [
                        "user_id": .string($0.userID.string), "experiment_key": .string($0.experimentKey.string),
                        "exposed_at": .string($0.happenedAt.rfc3339),
                    ]
                })
        ])
    }
}
