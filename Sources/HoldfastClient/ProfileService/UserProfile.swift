/// The stored variation of a user in each experiment. Ids are compared by their bytes, as on the server.
public struct UserProfile: Sendable, Hashable {
    public var userID: String
    /// Variation ids by experiment id. Experiment ids consist of ASCII letters and digits.
    public var experimentBucketMap: [String: String]

    public init(userID: String, experimentBucketMap: [String: String] = [:]) {
        self.userID = userID
        self.experimentBucketMap = experimentBucketMap
    }

    public static func == (left: UserProfile, right: UserProfile) -> Bool {
        left.userID.hasSameBytes(as: right.userID)
            && left.experimentBucketMap.count == right.experimentBucketMap.count
            && left.experimentBucketMap.allSatisfy {
                right.experimentBucketMap[$0.key]?.hasSameBytes(as: $0.value) == true
            }
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(Key(userID))
    }
}

extension UserProfile: Codable {
    private enum CodingKeys: String, CodingKey {
        case userID = "user_id"
        case experimentBucketMap = "experiment_bucket_map"
    }

    private struct Entry: Codable {
        var variationID: String

        private enum CodingKeys: String, CodingKey {
            case variationID = "variation_id"
        }
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        userID = try container.decode(String.self, forKey: .userID)
        experimentBucketMap = try container.decode([String: Entry].self, forKey: .experimentBucketMap).mapValues(
            \.variationID)
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(userID, forKey: .userID)
        try container.encode(experimentBucketMap.mapValues(Entry.init), forKey: .experimentBucketMap)
    }
}

// MARK: - Rules of the server

extension UserProfile {
    /// Checks the user id, the experiment ids and the variation ids.
    ///
    /// - Throws: ``HoldfastError/invalidArgument(_:)`` for a profile that the server would refuse.
    func check() throws(HoldfastError) {
        try HoldfastUser.check(id: userID)
        for (experiment, variation) in experimentBucketMap {
            // The subtraction wraps around for a byte below the first character. Bit 0x20 makes a letter lower-case.
            let isAlphanumeric = experiment.utf8.allSatisfy { byte in
                byte &- UInt8(ascii: "0") < 10 || (byte | 0x20) &- UInt8(ascii: "a") < 26
            }
            guard isAlphanumeric, (1...255).contains(experiment.utf8.count) else {
                throw .invalidArgument("experiment id must be 1 to 255 ASCII letters and digits; got '\(experiment)'")
            }
            guard (1...255).contains(variation.utf8.count) else {
                throw .invalidArgument(
                    "variation id must have 1 to 255 bytes; got \(variation.utf8.count) bytes in experiment '\(experiment)'"
                )
            }
        }
    }
}

// MARK: - Requests

extension HoldfastServer {
    private struct Users: Encodable {
        var userIDs: [String]

        private enum CodingKeys: String, CodingKey {
            case userIDs = "user_ids"
        }
    }

    private struct Profiles: Decodable {
        var profiles: [UserProfile?]
    }

    /// Returns the profiles of users, in their order; `nil` for a user without profile.
    func profiles(of userIDs: [String]) async throws(HoldfastError) -> [UserProfile?] {
        let body = try Self.encode(Users(userIDs: userIDs))
        let response = try await request("POST", "v1/profiles/lookup", body: body)
        let profiles = try Self.decode(Profiles.self, response.body).profiles
        guard profiles.count == userIDs.count else { throw .invalidResponse("the response lacks profiles") }
        return profiles
    }
}
