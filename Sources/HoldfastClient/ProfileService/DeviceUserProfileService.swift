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
    /// Receives profiles that are invalid or cannot be written.
    public let logger: HoldfastLogger?
    private let profiles: Locked<[Key: Stored]>
    /// The lifetime of an assignment after its last save, in seconds; `nil` for ever.
    private let assignmentTTL: Double?
    private let clock: any HoldfastClock

    /// A profile as the file has it: each assignment with its time and lifetime.
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
    ///   - file: the file of the profiles. It is created with its directory at the first save.
    ///   - preloaded: profiles that are used until a save changes them. Assignments in the file have precedence.
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
        var profiles = Dictionary(preloaded.map { (Key($0.userID), Self.stored($0, at: now)) }) { _, last in last }
        for stored in try Self.read(file, at: now) {
            profiles[Key(stored.userID), default: stored].experimentBucketMap
                .merge(stored.experimentBucketMap) { _, stored in stored }
        }
        self.profiles = Locked(profiles)
    }

    /// Returns the profiles of a file; none if there is no file. Assignments in the files of earlier releases have no
    /// time: their lifetime begins now.
    private static func read(_ file: URL, at now: Double) throws(HoldfastError) -> [Stored] {
        guard FileManager.default.fileExists(atPath: file.path) else { return [] }
        var profiles: [Stored]
        do {
            profiles = try JSONDecoder().decode([Stored].self, from: Data(contentsOf: file))
        } catch {
            throw .storage("\(file.path) cannot be read: \(error)")
        }
        for index in profiles.indices {
            for (experiment, entry) in profiles[index].experimentBucketMap where entry.updatedAt == nil {
                profiles[index].experimentBucketMap[experiment]?.updatedAt = now
            }
        }
        return profiles
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
            let present = unexpired(stored.experimentBucketMap).mapValues(\.variationID)
            // A profile whose assignments have all expired is absent. One that was saved without assignments is
            // present.
            guard !present.isEmpty || stored.experimentBucketMap.isEmpty else { return nil }
            return UserProfile(userID: stored.userID, experimentBucketMap: present)
        }
    }

    /// Merges a profile into the stored one and writes the file. An invalid profile is only logged. A failure to write
    /// is logged as well; the profile then stays in memory until the end of the process.
    public func save(userProfile: UserProfile) { save(userProfile, lifetimes: [:]) }

    /// Saves a profile whose assignments may have lifetimes of their own.
    ///
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
            let saved = Self.stored(userProfile, at: clock.now.timeIntervalSince1970, lifetimes: lifetimes)
            var merged = former ?? Stored(userID: userProfile.userID, experimentBucketMap: [:])
            merged.experimentBucketMap.merge(saved.experimentBucketMap) { stored, saved in
                // A repeated save renews the time. If assignments never expire the time does not matter, and the stored
                // entry stays, so that the file need not be written.
                let isEndless = assignmentTTL == nil && stored.lifetime == nil && saved.lifetime == nil
                return isEndless && stored.variationID.hasSameBytes(as: saved.variationID) ? stored : saved
            }
            merged.experimentBucketMap = unexpired(merged.experimentBucketMap)
            guard merged != former else { return }
            profiles[key] = merged
            write(profiles)
        }
    }

    /// Copies a user's assignments to another user, with their times and lifetimes. An assignment that the other user
    /// has already stays.
    package func copy(from formerID: String, to userID: String) {
        profiles.withLock { profiles in
            guard let former = profiles[Key(formerID)] else { return }
            var merged = profiles[Key(userID)] ?? Stored(userID: userID, experimentBucketMap: [:])
            merged.experimentBucketMap = unexpired(merged.experimentBucketMap)
                .merging(unexpired(former.experimentBucketMap)) { own, _ in own }
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

    // MARK: Stored profiles

    /// Returns a profile in the form of the file.
    ///
    /// - Parameters:
    ///   - time: the time of the save in seconds since 1970.
    ///   - lifetimes: the lifetimes that experiments define, in seconds.
    private static func stored(
        _ profile: UserProfile, at time: Double, lifetimes: [String: Double] = [:]
    ) -> Stored {
        var map: [String: Stored.Entry] = [:]
        for (experiment, variation) in profile.experimentBucketMap {
            map[experiment] = Stored.Entry(variationID: variation, updatedAt: time, lifetime: lifetimes[experiment])
        }
        return Stored(userID: profile.userID, experimentBucketMap: map)
    }

    /// Returns the assignments whose lifetime is not over.
    private func unexpired(_ entries: [String: Stored.Entry]) -> [String: Stored.Entry] {
        let now = clock.now.timeIntervalSince1970
        return entries.filter { _, entry in
            guard let lifetime = entry.lifetime ?? assignmentTTL, lifetime > 0, let updatedAt = entry.updatedAt else {
                return true
            }
            return now < updatedAt + lifetime
        }
    }

    /// Replaces the file atomically.
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
