public import Foundation
public import HoldfastClient

/// A User Profile Service for the Optimizely Feature Experimentation Swift SDK, over Holdfast or a file on the device.
///
/// The SDK's protocol `OPTUserProfileService` is adopted by a subclass in the app, because this package does not depend on
/// the SDK:
///
/// ```swift
/// final class ProfileService: HoldfastUserProfileService, OPTUserProfileService, @unchecked Sendable {}
///
/// let profiles = ProfileService(UserProfileService(client: client))
/// let optimizely = OptimizelyClient(sdkKey: sdkKey, userProfileService: profiles)
/// ```
///
/// Neither method waits for the network or blocks for longer than a lock.
open class HoldfastUserProfileService: NSObject, @unchecked Sendable {
    // Safe: the only property is immutable and Sendable. Subclasses are responsible for theirs.
    public let profiles: any UserProfileStore

    public init(_ profiles: any UserProfileStore) {
        self.profiles = profiles
    }

    /// Uses a ``UserProfileService`` of ``HoldfastClient/shared``, for an SDK that creates the service by itself.
    ///
    /// - Precondition: the shared client was started.
    public required override init() {
        profiles = UserProfileService(client: .shared)
    }

    /// Returns the profile of a user in the SDK's format, `nil` if there is none or it is not loaded yet.
    #if canImport(ObjectiveC)
        @objc
    #endif
    open func lookup(userId: String) -> [String: Any]? {
        guard let profile = profiles.lookup(userID: userId) else { return nil }
        let map = profile.experimentBucketMap.mapValues { ["variation_id": $0] }
        return ["user_id": userId, "experiment_bucket_map": map]
    }

    /// Saves a profile in the SDK's format. Does nothing for a dictionary that is not a profile.
    #if canImport(ObjectiveC)
        @objc
    #endif
    open func save(userProfile: [String: Any]) {
        guard let profile = Self.profile(userProfile) else { return }
        profiles.save(userProfile: profile)
    }

    private static func profile(_ dictionary: [String: Any]) -> UserProfile? {
        guard let userID = dictionary["user_id"] as? String,
            let map = dictionary["experiment_bucket_map"] as? [String: Any]
        else { return nil }
        var variations: [String: String] = [:]
        for (experiment, entry) in map {
            guard let entry = entry as? [String: Any], let variation = entry["variation_id"] as? String else {
                return nil
            }
            variations[experiment] = variation
        }
        return UserProfile(userID: userID, experimentBucketMap: variations)
    }
}
