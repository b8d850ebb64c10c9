public import Foundation

/// Stores user profiles for an experiment SDK. ``UserProfileService`` keeps them on a Holdfast server,
/// ``DeviceUserProfileService`` in a file.
public protocol UserProfileStore: Sendable {
    /// Returns the profile of a user without waiting; `nil` if there is none.
    func lookup(userID: String) -> UserProfile?

    /// Merges a profile into the stored one.
    func save(userProfile: UserProfile)

    /// Receives what goes wrong with profiles. By default nothing is logged.
    var logger: HoldfastLogger? { get }
}

extension UserProfileStore {
    public var logger: HoldfastLogger? { nil }
}

extension UserProfileService: UserProfileStore {}

/// A User Profile Service without a server: keeps profiles in a file on the device.
///
/// Profiles survive updates of the app, but not its deletion, and are not shared between devices. Only one process at a
/// time may use the file. It is written at each save that changes a profile: right for the few users of an app.
public final class DeviceUserProfileService: UserProfileStore {
    private let file: URL
    public let logger: HoldfastLogger?
    private let profiles: Locked<[Key: UserProfile]>

    /// - Parameters:
    ///   - preloaded: profiles that are used until a save changes them; stored profiles have precedence.
    ///   - logger: receives profiles that are invalid or cannot be written.
    /// - Throws: ``HoldfastError/storage(_:)`` if the file exists and cannot be read.
    public init(
        file: URL, preloaded: [UserProfile] = [], logger: HoldfastLogger? = nil
    ) throws(HoldfastError) {
        self.file = file
        self.logger = logger
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
        self.profiles = Locked(profiles)
    }

    public func lookup(userID: String) -> UserProfile? {
        profiles.withLock { $0[Key(userID)] }
    }

    /// Merges a profile into the stored one and writes the file. An invalid profile is only logged, and so is a failure
    /// to write: until the end of the process the profile is known nevertheless.
    public func save(userProfile: UserProfile) {
        do throws(HoldfastError) {
            try userProfile.check()
        } catch {
            logger?(.error, "profile not saved", ["reason": error.localizedDescription])
            return
        }
        profiles.withLock { profiles in
            let key = Key(userProfile.userID)
            var new = profiles[key] ?? UserProfile(userID: userProfile.userID)
            new.experimentBucketMap.merge(userProfile.experimentBucketMap) { $1 }
            guard new != profiles[key] else { return }
            profiles[key] = new
            write(profiles)
        }
    }

    /// Deletes the stored profile of a user.
    public func remove(userID: String) {
        profiles.withLock { profiles in
            if profiles.removeValue(forKey: Key(userID)) != nil { write(profiles) }
        }
    }

    private func write(_ profiles: [Key: UserProfile]) {
        do {
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try JSONEncoder().encode(Array(profiles.values)).write(to: file, options: .atomic)
        } catch {
            logger?(.error, "profiles cannot be written", ["file": file.path, "error": "\(error)"])
        }
    }
}
