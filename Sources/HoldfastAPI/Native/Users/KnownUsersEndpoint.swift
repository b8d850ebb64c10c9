import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// Lists users for the console:
///
/// - `GET /v1/users`: the users whose ids begin with a text, in the byte order of their ids.
/// - `GET /v1/users/recent`: the users of the last exposures.
struct KnownUsersEndpoint {
    let store: any StoreSession

    /// The number of exposures that are read per user of a response, because a user may have several.
    private static let exposuresPerUser = 10

    /// Responds with a page of users, each with the number of assignments.
    func list(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let query = try request.query(knowing: ["prefix", "after", "limit"])
        let limit = try Request.pageLimit(query)
        let after = try query["after"].map { text throws(CoreError) in try ProfileInput.checkUserID(text, at: nil) }
        let prefix = query["prefix"] ?? ""
        // Databases do not accept a text with a NUL.
        if !prefix.isEmpty { _ = try ProfileInput.checkUserID(prefix, at: nil) }
        // One user more than requested shows whether there is another page.
        let users = try await store.read(.knownUsers(prefix: prefix, after: after, limit: limit + 1))
        let page = users.prefix(limit)
        return .json([
            "users": .array(
                page.map { user in
                    ["user_id": .string(user.userID.string), "assignments": .integer(Int64(user.assignments))]
                }),
            "next": users.count > limit ? page.last.map { .string($0.userID.string) } ?? .null : .null,
        ])
    }

    /// Responds with the users of the last exposures, each once, with the last exposure.
    func recent(_ request: borrowing Request, _ call: Call) async throws -> Response {
        let limit = try Request.pageLimit(request.query(knowing: ["limit"]))
        let exposures = try await store.read(.latestExposures(limit: limit * Self.exposuresPerUser))
        var users: Set<Identifier> = []
        let latestOfUsers = exposures.map(\.exposure).filter { users.insert($0.userID).inserted }.prefix(limit)
        return .json([
            "users": .array(
                latestOfUsers.map { exposure in
                    [
                        "user_id": .string(exposure.userID.string),
                        "experiment_key": .string(exposure.experimentKey.string),
                        "exposed_at": .string(exposure.happenedAt.rfc3339),
                    ]
                })
        ])
    }
}
