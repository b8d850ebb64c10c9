import Foundation
import HoldfastClient
import Testing

// The code of the article UserProfiles; ArticleTests compares the two.

struct UserProfilesExample {
    @Test func `Profiles are loaded, looked up, overridden and saved`() async throws {
        let server = try await RealServer()
        let client = try server.client(in: TemporaryDirectory())

        let profiles = UserProfileService(client: client)
        try await profiles.load(userIDs: ["ada", "bob"])
        let profile = profiles.lookup(userID: "ada")
        profiles.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["7001": "70012"]))

        #expect(profile == nil)
        profiles.override(["7001": "70011"], userID: "ada")
        #expect(profiles.lookup(userID: "ada")?.experimentBucketMap == ["7001": "70011"])
        try await client.flush()
        #expect(try await server.request("GET", "/v1/profiles").contains("70012"))
        client.destroy()
    }

    @Test func `Profiles stay on the device`() throws {
        let folder = try TemporaryDirectory()
        let file = folder.url.appending(path: "profiles.json")

        let profiles = try DeviceUserProfileService(file: file)
        profiles.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["7001": "70012"]))

        #expect(profiles.lookup(userID: "ada")?.experimentBucketMap == ["7001": "70012"])
    }
}
