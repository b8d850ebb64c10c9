import Foundation
import GRDB
import Hummingbird

/// The server that one would write with the usual libraries: profiles as JSON in SQLite, through GRDB, answered by
/// Hummingbird. `peer PORT DATABASE USERS` fills the database if it is empty, and serves `GET /v1/profiles/{user_id}`.
@main
struct Peer {
    struct Profile: Codable, ResponseEncodable, FetchableRecord, PersistableRecord {
        static let databaseTableName = "profiles"
        var userID: String
        var experimentBucketMap: [String: Variation]

        enum CodingKeys: String, CodingKey {
            case userID = "user_id"
            case experimentBucketMap = "experiment_bucket_map"
        }
    }

    struct Variation: Codable {
        var variationID: String

        enum CodingKeys: String, CodingKey {
            case variationID = "variation_id"
        }
    }

    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let port = Int(arguments[1]), let users = Int(arguments[3]) else {
            FileHandle.standardError.write(Data("usage: peer PORT DATABASE USERS\n".utf8))
            exit(64)
        }
        let pool = try DatabasePool(path: arguments[2])
        try await fill(pool, users)
        let router = Router()
        router.get("/v1/profiles/:user_id") { _, context in
            let userID = try context.parameters.require("user_id")
            guard let profile = try await pool.read({ try Profile.fetchOne($0, key: userID) }) else {
                throw HTTPError(.notFound)
            }
            return profile
        }
        let application = Application(
            router: router, configuration: .init(address: .hostname("127.0.0.1", port: port)))
        try await application.runService()
    }

    /// The same users as those of the other rows.
    private static func fill(_ pool: DatabasePool, _ users: Int) async throws {
        try await pool.write { database in
            try database.create(table: Profile.databaseTableName, options: [.ifNotExists, .withoutRowID]) { table in
                table.primaryKey("user_id", .text)
                table.column("experiment_bucket_map", .jsonText).notNull()
            }
            guard try Profile.fetchCount(database) == 0 else { return }
            for index in 0..<users {
                let map = [
                    "10001": Variation(variationID: "\(20_000 + index % 97)"),
                    "10002": Variation(variationID: "\(30_000 + index % 89)"),
                    "7001": Variation(variationID: "7001\(1 + index % 2)"),
                ]
                try Profile(userID: "user\(index)", experimentBucketMap: map).insert(database)
            }
        }
    }
}
