public import Foundation

/// Stores user profiles for an experiment SDK. ``UserProfileService`` keeps them on a Holdfast server,
/// ``DeviceUserProfileService`` in a file.
public protocol UserProfileStore: Sendable {
    /// Returns the profile of a user without waiting; `nil` if there is none.
    func lookup(userID: String) -> UserProfile?

    /// Merges a profile into the stored one.
    func save(userProfile: UserProfile)

    /// Receives errors about profiles. By default nothing is logged.
    var logger: HoldfastLogger? { get }
}

extension UserProfileStore {
    public var logger: HoldfastLogger? { nil }
}

extension UserProfileService: UserProfileStore {}

/// A User Profile Service without a server: keeps profiles in a file on the device.
///
/// Profiles survive updates of the app, but not its deletion, and are not shared between devices. Only one process at a
/// time may use the file. It is written at each save that changes a profile, so it is suited for the few users of an
/// app.
public final class DeviceUserProfileService: UserProfileStore {
    private let file: URL
    public let logger: HoldfastLogger?
    private let profiles: Locked<[Key: Stored]>
    private let assignmentTTL: Double?
    private let clock: any HoldfastClock

    /// A profile with the times of its last saves.
    private struct Stored: Codable, Equatable {
        struct Entry: Codable, Equatable {
            var variationID: String
            /// The time of the last save in seconds since 1970; absent in the files of earlier releases.
            var updatedAt: Double?
            /// The lifetime in seconds, 0 for unlimited; absent if the lifetime of the service applies.
            var lifetime: Double?

            private enum CodingKeys: String, CodingKey {
                case variationID = "variation_id"
                case updatedAt = "updated_at"
                case lifetime
            }
        }

        var userID: String
        var experimentBucketMap: [String: Entry]

        private enum CodingKeys: String, CodingKey {
            case userID = "user_id"
            case experimentBucketMap = "experiment_bucket_map"
        }
    }

    /// - Parameters:
    ///   - preloaded: profiles that are used until a save changes them; stored profiles have precedence.
    ///   - assignmentTTL: how long an assignment is kept after the last save that had it, as with the server's option
    ///     `--assignment-ttl`; `nil` for ever.
    ///   - logger: receives profiles that are invalid or cannot be written.
    /// - Throws: ``HoldfastError/storage(_:)`` if the file exists and cannot be read.
    public init(
        file: URL, preloaded: [UserProfile] = [], assignmentTTL: Duration?, logger: HoldfastLogger? = nil,
        clock: any HoldfastClock = SystemClock()
    ) throws(HoldfastError) {
        self.file = file
        self.logger = logger
        self.assignmentTTL = assignmentTTL?.inSeconds
        self.clock = clock
        let now = clock.now.timeIntervalSince1970
        var profiles = Dictionary(preloaded.map { (Key($0.userID), Self.stored($0, now)) }) { _, last in last }
        if FileManager.default.fileExists(atPath: file.path) {
            do {
                for var profile in try JSONDecoder().decode([Stored].self, from: Data(contentsOf: file)) {
                    for name in profile.experimentBucketMap.keys
                    where profile.experimentBucketMap[name]?.updatedAt == nil {
                        profile.experimentBucketMap[name]?.updatedAt = now
                    }
                    profiles[Key(profile.userID), default: profile].experimentBucketMap
                        .merge(profile.experimentBucketMap) { $1 }
                }
            } catch {
                throw .storage("\(file.path) cannot be read: \(error)")
            }
        }
        self.profiles = Locked(profiles)
    }

    /// Keeps assignments for ever; see ``init(file:preloaded:assignmentTTL:logger:clock:)``.
    public convenience init(
        file: URL, preloaded: [UserProfile] = [], logger: HoldfastLogger? = nil
    ) throws(HoldfastError) {
        try self.init(file: file, preloaded: preloaded, assignmentTTL: nil, logger: logger)
    }

    public func lookup(userID: String) -> UserProfile? {
        profiles.withLock { profiles in
            guard let stored = profiles[Key(userID)] else { return nil }
            let present = stored.experimentBucketMap.filter { !isExpired($0.value) }.mapValues(\.variationID)
            guard !present.isEmpty || stored.experimentBucketMap.isEmpty else { return nil }
            return UserProfile(userID: stored.userID, experimentBucketMap: present)
        }
    }

    /// - Parameter lifetimes: the lifetimes that experiments define, in seconds.
    private static func stored(_ profile: UserProfile, _ now: Double, _ lifetimes: [String: Double] = [:]) -> Stored {
        var map: [String: Stored.Entry] = [:]
        for (experiment, variation) in profile.experimentBucketMap {
            map[experiment] = Stored.Entry(variationID: variation, updatedAt: now, lifetime: lifetimes[experiment])
        }
        return Stored(userID: profile.userID, experimentBucketMap: map)
    }

    private func isExpired(_ entry: Stored.Entry) -> Bool {
        guard let lifetime = entry.lifetime ?? assignmentTTL, lifetime > 0, let updatedAt = entry.updatedAt else {
            return false
        }
        return clock.now.timeIntervalSince1970 >= updatedAt + lifetime
    }

    /// Merges a profile into the stored one and writes the file. An invalid profile is only logged. A failure to write
    /// is logged as well; the profile then stays in memory until the end of the process.
    public func save(userProfile: UserProfile) { save(userProfile, lifetimes: [:]) }

    /// - Parameter lifetimes: the lifetimes of assignments in seconds, by experiment; 0 for unlimited. For other
    ///   experiments the lifetime of the service applies.
    package func save(_ userProfile: UserProfile, lifetimes: [String: Double]) {
        do throws(HoldfastError) {
            try userProfile.check()
        } catch {
            logger?(.error, "profile not saved", ["reason": error.localizedDescription])
            return
        }
        profiles.withLock { profiles in
            let key = Key(userProfile.userID)
            let former = profiles[key]
            let saved = Self.stored(userProfile, clock.now.timeIntervalSince1970, lifetimes)
            var new = former ?? Stored(userID: userProfile.userID, experimentBucketMap: [:])
            // A repeated save renews the time, which matters only if assignments expire.
            new.experimentBucketMap.merge(saved.experimentBucketMap) { stored, saved in
                let isEndless = assignmentTTL == nil && stored.lifetime == nil && saved.lifetime == nil
                return isEndless && stored.variationID.hasSameBytes(as: saved.variationID) ? stored : saved
            }
            new.experimentBucketMap = new.experimentBucketMap.filter { !isExpired($0.value) }
            guard new != former else { return }
            profiles[key] = new
            write(profiles)
        }
    }

    /// Gives a user the variations of another in all experiments in which it has none, with their times and lifetimes.
    package func copy(from formerID: String, to userID: String) {
        profiles.withLock { profiles in
            guard let former = profiles[Key(formerID)] else { return }
            var merged = profiles[Key(userID)] ?? Stored(userID: userID, experimentBucketMap: [:])
            merged.experimentBucketMap = merged.experimentBucketMap.filter { !isExpired($0.value) }
                .merging(former.experimentBucketMap.filter { !isExpired($0.value) }) { own, _ in own }
            guard merged != profiles[Key(userID)], !merged.experimentBucketMap.isEmpty else { return }
            profiles[Key(userID)] = merged
            write(profiles)
        }
    }

    /// Deletes the stored profile of a user.
    public func remove(userID: String) {
        profiles.withLock { profiles in
            if profiles.removeValue(forKey: Key(userID)) != nil { write(profiles) }
        }
    }

    private func write(_ profiles: [Key: Stored]) {
        do {
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try JSONEncoder().encode(Array(profiles.values)).write(to: file, options: .atomic)
        } catch {
            logger?(.error, "profiles cannot be written", ["file": file.path, "error": "\(error)"])
        }
    }
}
