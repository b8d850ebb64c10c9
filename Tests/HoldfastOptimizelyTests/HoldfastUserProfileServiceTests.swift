import Foundation
import HoldfastClient
import HoldfastOptimizely
import Testing

/// The shape of the SDK's protocol, without `@objc`, which Linux does not have.
protocol OPTUserProfileService {
    typealias UPProfile = [String: Any]
    typealias UPBucketMap = [String: UPExperimentMap]
    typealias UPExperimentMap = [String: String]

    init()
    func lookup(userId: String) -> UPProfile?
    func save(userProfile: UPProfile)
}

/// As an app writes it.
final class ProfileService: HoldfastUserProfileService, OPTUserProfileService, @unchecked Sendable {}

struct HoldfastUserProfileServiceTests {
    @Test func `The SDK saves and looks up dictionaries`() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: file) }
        let service: any OPTUserProfileService = ProfileService(try DeviceUserProfileService(file: file))

        #expect(service.lookup(userId: "ada") == nil)
        service.save(userProfile: ["user_id": "ada", "experiment_bucket_map": ["7001": ["variation_id": "70012"]]])
        let profile = try #require(service.lookup(userId: "ada"))
        #expect(profile["user_id"] as? String == "ada")
        #expect(
            profile["experiment_bucket_map"] as? OPTUserProfileService.UPBucketMap == [
                "7001": ["variation_id": "70012"]
            ])
    }

    @Test func `A dictionary that is no profile is not saved`() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: file) }
        let service = ProfileService(try DeviceUserProfileService(file: file))
        for dictionary in [
            [:], ["user_id": "ada"], ["user_id": 1, "experiment_bucket_map": [String: Any]()],
            ["user_id": "ada", "experiment_bucket_map": ["7001": "70012"]],
            ["user_id": "ada", "experiment_bucket_map": ["7001": ["variation_id": 70012]]],
        ] as [[String: Any]] {
            service.save(userProfile: dictionary)
            #expect(service.lookup(userId: "ada") == nil)
        }
    }

    /// The example of the SDK's documentation: a service for tracking only.
    @Test func `A service may save without looking up`() throws {
        final class CustomUserProfileService: HoldfastUserProfileService, OPTUserProfileService, @unchecked Sendable {
            override func lookup(userId: String) -> [String: Any]? { nil }
        }
        let file = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: file) }
        let store = try DeviceUserProfileService(file: file)
        let service = CustomUserProfileService(store)
        service.save(userProfile: ["user_id": "ada", "experiment_bucket_map": ["7001": ["variation_id": "70012"]]])
        #expect(service.lookup(userId: "ada") == nil)
        #expect(store.lookup(userID: "ada")?.experimentBucketMap == ["7001": "70012"])
    }
}
