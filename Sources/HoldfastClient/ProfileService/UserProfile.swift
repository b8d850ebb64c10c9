/// Which variation a user has in each experiment.
public struct UserProfile: Sendable, Hashable {
    public var userId: String
    /// The ids of variations by the ids of experiments, which are ASCII letters and digits.
    public var experimentBucketMap: [String: String]

    public init(userId: String, experimentBucketMap: [String: String] = [:]) {
        self.userId = userId
        self.experimentBucketMap = experimentBucketMap
    }

    public static func == (left: UserProfile, right: UserProfile) -> Bool {
        left.userId.hasSameBytes(as: right.userId)
            && left.experimentBucketMap.count == right.experimentBucketMap.count
            && left.experimentBucketMap.allSatisfy { right.experimentBucketMap[$0.key]?.hasSameBytes(as: $0.value) == true }
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(Key(userId))
    }
}

extension UserProfile: Codable {
    private enum CodingKeys: String, CodingKey {
        case userId = "user_id"
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
        userId = try container.decode(String.self, forKey: .userId)
        experimentBucketMap = try container.decode([String: Entry].self, forKey: .experimentBucketMap).mapValues(\.variationID)
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(userId, forKey: .userId)
        try container.encode(experimentBucketMap.mapValues(Entry.init), forKey: .experimentBucketMap)
    }
}

extension UserProfile {
    /// - Throws: ``HoldfastError/invalidArgument(_:)``, naming what the server would refuse.
    func check() throws(HoldfastError) {
        try HoldfastUser.check(id: userId)
        for (experiment, variation) in experimentBucketMap {
            let isAlphanumeric = experiment.utf8.allSatisfy { byte in
                byte &- UInt8(ascii: "0") < 10 || (byte | 0x20) &- UInt8(ascii: "a") < 26
            }
            guard isAlphanumeric, (1...255).contains(experiment.utf8.count) else {
                throw .invalidArgument("an experiment id is 1 to 255 ASCII letters and digits: '\(experiment)'")
            }
            guard (1...255).contains(variation.utf8.count) else {
                throw .invalidArgument("a variation id is 1 to 255 bytes long, in experiment '\(experiment)'")
            }
        }
    }
}
