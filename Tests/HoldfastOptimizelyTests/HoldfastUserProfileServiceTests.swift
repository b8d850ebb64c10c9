import Foundation
import HoldfastClient
import HoldfastOptimizely
import Synchronization
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

    @Test func `A dictionary that is no profile is not saved, and the log says why`() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: file) }
        let reasons = Mutex<[String]>([])
        let service = ProfileService(
            try DeviceUserProfileService(file: file) { level, message, metadata in
                #expect(level == .error && message == "profile not saved")
                reasons.withLock { $0.append(metadata["reason"] ?? "") }
            })
        for dictionary in [
            [:], ["user_id": "ada"], ["user_id": 1, "experiment_bucket_map": [String: Any]()],
            ["user_id": "ada", "experiment_bucket_map": ["7001": "70012"]],
            ["user_id": "ada", "experiment_bucket_map": ["7001": ["variation_id": 70012]]],
        ] as [[String: Any]] {
            service.save(userProfile: dictionary)
            #expect(service.lookup(userId: "ada") == nil)
        }
        #expect(
            reasons.withLock { $0 } == [
                "/user_id must be a string; got nothing", "/experiment_bucket_map must be a dictionary; got nothing",
                "/user_id must be a string; got Int",
                "/experiment_bucket_map/7001 must be a dictionary; got String",
                "/experiment_bucket_map/7001/variation_id must be a string; got Int",
            ])
    }

    @Test func `The client's logger hears of it`() throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "holdfast-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: directory) }
        let reasons = Mutex<[String]>([])
        var configuration = HoldfastConfiguration(
            endpoint: try #require(URL(string: "http://127.0.0.1:9")), directory: directory)
        configuration.logger = { _, _, metadata in reasons.withLock { $0.append(metadata["reason"] ?? "") } }
        let client = try HoldfastClient(configuration: configuration)
        ProfileService(UserProfileService(client: client)).save(userProfile: ["user_id": "ada"])
        #expect(reasons.withLock { $0 } == ["/experiment_bucket_map must be a dictionary; got nothing"])
        client.destroy()
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
