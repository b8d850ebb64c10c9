import Foundation
import HoldfastClient
import Testing

// What the article UserProfiles shows; ArticleTests holds one to the other.

/// As an SDK declares it.
protocol OPTUserProfileService {
    func lookup(userId: String) -> [String: Any]?
    func save(userProfile: [String: Any])
}

final class SDKProfileService: OPTUserProfileService {
    private let profiles: UserProfileService

    init(_ profiles: UserProfileService) {
        self.profiles = profiles
    }

    func lookup(userId: String) -> [String: Any]? {
        guard let profile = profiles.lookup(userID: userId) else { return nil }
        let map = profile.experimentBucketMap.mapValues { ["variation_id": $0] }
        return ["user_id": userId, "experiment_bucket_map": map]
    }

    func save(userProfile: [String: Any]) {
        guard let userID = userProfile["user_id"] as? String,
            let map = userProfile["experiment_bucket_map"] as? [String: [String: Any]]
        else { return }
        let variations = map.compactMapValues { $0["variation_id"] as? String }
        profiles.save(userProfile: UserProfile(userID: userID, experimentBucketMap: variations))
    }
}

struct UserProfilesExample {
    @Test func `An SDK saves through the adapter and looks up what it saved`() async throws {
        let server = try RealServer()
        let client = try server.client(in: TemporaryDirectory())

        let profiles = UserProfileService(client: client)
        try await profiles.load(userIDs: ["ada", "bob"])
        let profile = profiles.lookup(userID: "ada")
        profiles.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["7001": "70012"]))

        #expect(profile == nil)
        let service: any OPTUserProfileService = SDKProfileService(profiles)
        service.save(userProfile: ["user_id": "bob", "experiment_bucket_map": ["7001": ["variation_id": "70011"]]])
        let map = service.lookup(userId: "bob")?["experiment_bucket_map"] as? [String: [String: String]]
        #expect(map == ["7001": ["variation_id": "70011"]])
        try await client.flush()
        #expect(try await server.request("GET", "/v1/profiles").split(separator: "\n").count == 2)
        client.destroy()
    }
}
