public import Foundation
import Synchronization

/// Stores user profiles for an experiment SDK. ``UserProfileService`` keeps them on a Holdfast server,
/// ``DeviceUserProfileService`` in a file.
public protocol UserProfileStore: Sendable {
    /// Returns the profile of a user without waiting; `nil` if there is none.
    func lookup(userID: String) -> UserProfile?

    /// Merges a profile into the stored one.
    func save(userProfile: UserProfile)
}

extension UserProfileService: UserProfileStore {}

/// A User Profile Service without a server: keeps profiles in a file on the device.
///
/// Profiles survive updates of the app, but not its deletion, and are not shared between devices. Only one process at a
/// time may use the file. It is written at each save that changes a profile: right for the few users of an app.
public final class DeviceUserProfileService: UserProfileStore {
    private let file: URL
    private let profiles: Mutex<[Key: UserProfile]>

    /// - Parameter preloaded: profiles that are used until a save changes them; stored profiles have precedence.
    /// - Throws: ``HoldfastError/storage(_:)`` if the file exists and cannot be read.
    public init(file: URL, preloaded: [UserProfile] = []) throws(HoldfastError) {
        self.file = file
        var profiles = Dictionary(preloaded.map { (Key($0.userID), $0) }) { _, last in last }
        if FileManager.default.fileExists(atPath: file.path) {
            do {
                for profile in try JSONDecoder().decode([UserProfile].self, from: Data(contentsOf: file)) {
                    profiles[Key(profile.userID), default: profile].experimentBucketMap
                        .merge(profile.experimentBucketMap) { $1 }
                }
            } catch {
                throw .storage("\(file.path) cannot be read: \(error)")
            }
        }
        self.profiles = Mutex(profiles)
    }

    public func lookup(userID: String) -> UserProfile? {
        profiles.withLock { $0[Key(userID)] }
    }

    /// Merges a profile into the stored one and writes the file. An invalid profile is ignored.
    public func save(userProfile: UserProfile) {
        guard (try? userProfile.check()) != nil else { return }
        profiles.withLock { profiles in
            let key = Key(userProfile.userID)
            var new = profiles[key] ?? UserProfile(userID: userProfile.userID)
            new.experimentBucketMap.merge(userProfile.experimentBucketMap) { $1 }
            guard new != profiles[key] else { return }
            profiles[key] = new
            guard let content = try? JSONEncoder().encode(Array(profiles.values)) else { return }
            try? FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try? content.write(to: file, options: .atomic)
        }
    }

    /// Deletes the stored profile of a user.
    public func remove(userID: String) {
        profiles.withLock { profiles in
            guard profiles.removeValue(forKey: Key(userID)) != nil,
                let content = try? JSONEncoder().encode(Array(profiles.values))
            else { return }
            try? content.write(to: file, options: .atomic)
        }
    }
}
