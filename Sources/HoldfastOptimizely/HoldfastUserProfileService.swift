public import Foundation
public import HoldfastClient

/// A User Profile Service for the Optimizely Feature Experimentation Swift SDK, over Holdfast or a file on the device.
///
/// The SDK's protocol `OPTUserProfileService` is adopted by a subclass in the app, because this package does not depend
/// on the SDK:
///
/// ```swift
/// final class ProfileService: HoldfastUserProfileService, OPTUserProfileService, @unchecked Sendable {}
///
/// let profiles = ProfileService(UserProfileService(client: client))
/// let optimizely = OptimizelyClient(sdkKey: sdkKey, userProfileService: profiles)
/// ```
///
/// In an app the user of the SDK is ``HoldfastClient/anonymousUserID`` before the login, or the user whom a signed
/// token names afterwards: a device may load and save no other profiles; see `UserProfileService`.
///
/// Neither method waits for the network or blocks for longer than a lock.
open class HoldfastUserProfileService: NSObject, @unchecked Sendable {
    // Safe: the only property is immutable and Sendable. Subclasses are responsible for theirs.
    /// Keeps the profiles, on a Holdfast server or in a file on the device.
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

    /// Returns the profile of a user in the SDK's format.
    ///
    /// - Returns: `nil` if there is no profile, or if it is not loaded yet.
    #if canImport(ObjectiveC)
        @objc
    #endif
    open func lookup(userId: String) -> [String: Any]? {
        guard let profile = profiles.lookup(userID: userId) else { return nil }
        let map = profile.experimentBucketMap.mapValues { ["variation_id": $0] }
        return ["user_id": userId, "experiment_bucket_map": map]
    }

    /// Saves a profile in the SDK's format. A dictionary that is not a profile is only logged, by the logger of the
    /// client or of the ``DeviceUserProfileService``.
    #if canImport(ObjectiveC)
        @objc
    #endif
    open func save(userProfile: [String: Any]) {
        do throws(MalformedProfile) {
            profiles.save(userProfile: try Self.profile(userProfile))
        } catch {
            profiles.logger?(.error, "profile not saved", ["reason": error.reason])
        }
    }

    /// A dictionary is not a profile.
    private struct MalformedProfile: Error {
        let reason: String

        /// - Parameters:
        ///   - pointer: JSON pointer to the wrong value.
        ///   - requirement: the required type.
        ///   - found: the wrong value; `nil` if it is missing.
        init(_ pointer: String, _ requirement: String, _ found: Any?) {
            reason = "\(pointer) must be \(requirement); got \(found.map { "\(type(of: $0))" } ?? "nothing")"
        }
    }

    /// Reads a profile in the SDK's format.
    private static func profile(_ dictionary: [String: Any]) throws(MalformedProfile) -> UserProfile {
        guard let userID = dictionary["user_id"] as? String else {
            throw MalformedProfile("/user_id", "a string", dictionary["user_id"])
        }
        guard let map = dictionary["experiment_bucket_map"] as? [String: Any] else {
            throw MalformedProfile("/experiment_bucket_map", "a dictionary", dictionary["experiment_bucket_map"])
        }
        var variations: [String: String] = [:]
        for (experiment, value) in map {
            let pointer = "/experiment_bucket_map/\(experiment)"
            guard let entry = value as? [String: Any] else { throw MalformedProfile(pointer, "a dictionary", value) }
            guard let variation = entry["variation_id"] as? String else {
                throw MalformedProfile("\(pointer)/variation_id", "a string", entry["variation_id"])
            }
            variations[experiment] = variation
        }
        return UserProfile(userID: userID, experimentBucketMap: variations)
    }
}
