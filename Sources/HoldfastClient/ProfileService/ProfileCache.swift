/// The state of ``SharedProfiles``: the cached profiles, the saves that are not delivered yet, and the users to load.
struct ProfileCache {
    /// The cached profile of a user.
    struct Entry: Codable {
        var userID: String
        /// Variation ids by experiment id, including saves that are not delivered yet.
        var variations: [String: String]
        /// Whether the server has the user, or will have it once all saves are delivered.
        var exists: Bool
        /// Time of the server's response in seconds since 1970; 0 before the first response.
        var loadedAt: Double
    }

    /// The saves of a user that are still queued.
    struct PendingSaves {
        /// The assignments of all these saves. If two saves have the same experiment, the later one counts.
        var variations: [String: String] = [:]
        /// The number of queued events.
        var events = 0
    }

    /// The cached profiles, by user.
    var cache: BoundedCache<Entry>
    /// The users that the background task will load.
    var requestedUsers: Set<Key> = []
    /// The users of the request in progress.
    var usersInRequest: Set<Key> = []
    /// The saves that are not delivered yet, by user.
    var pendingSaves: [Key: PendingSaves] = [:]
    /// Whether the cache differs from its file.
    var hasChanged = false
    /// Variation ids by experiment id from the app's former storage. Assignments of the server have precedence.
    var preloaded: [Key: [String: String]] = [:]
    /// Variation ids by experiment id that an app has set for a user.
    var overrides: [Key: [String: String]] = [:]
    /// Finds responses to loads that may be outdated.
    var loads = LoadTracker()
    /// Whether any service looks up users. Otherwise users who may have changed need not be loaded.
    var isLookupEnabled = false

    /// The maximum number of requested users, to bound memory while the server cannot be reached.
    static let maximumRequests = 100_000

    /// Requests a user, unless too many users are requested already.
    ///
    /// - Returns: whether the request is new.
    mutating func requestUser(_ key: Key) -> Bool {
        guard requestedUsers.count < Self.maximumRequests else { return false }
        return requestedUsers.insert(key).inserted
    }

    /// Adds a profile from the app's former storage.
    mutating func preload(_ profile: UserProfile) {
        let key = Key(profile.userID)
        preloaded[key] = profile.experimentBucketMap
        // `loadedAt` stays 0, so that a lookup queries the server.
        var entry = cache.value(key) ?? Entry(userID: profile.userID, variations: [:], exists: true, loadedAt: 0)
        guard entry.loadedAt == 0 else { return }
        entry.variations = profile.experimentBucketMap.merging(entry.variations) { _, cached in cached }
        cache.set(key, entry)
    }

    /// Caches the server's response for a user, with preloaded assignments below it and queued saves above it.
    ///
    /// - Parameter profile: `nil` if the server has no such user.
    mutating func setLoaded(_ profile: UserProfile?, of userID: String, at time: Double) {
        let key = Key(userID)
        let pending = pendingSaves[key]?.variations
        let variations = (preloaded[key] ?? [:])
            .merging(profile?.experimentBucketMap ?? [:]) { _, loaded in loaded }
            .merging(pending ?? [:]) { _, pending in pending }
        let exists = profile != nil || pending != nil || preloaded[key] != nil
        cache.set(key, Entry(userID: userID, variations: variations, exists: exists, loadedAt: time))
    }

    // MARK: Saves

    /// Adds a save that is queued.
    mutating func add(_ profile: UserProfile) {
        let key = Key(profile.userID)
        var pending = pendingSaves[key] ?? PendingSaves()
        pending.variations.merge(profile.experimentBucketMap) { _, new in new }
        pending.events += 1
        pendingSaves[key] = pending
        var entry = cache.value(key) ?? Entry(userID: profile.userID, variations: [:], exists: true, loadedAt: 0)
        entry.variations.merge(profile.experimentBucketMap) { _, new in new }
        entry.exists = true
        cache.set(key, entry)
        hasChanged = true
    }

    /// Ends a save whose assignments will not be sent, and restores the former variations, so that a repeated save
    /// sends them.
    ///
    /// - Parameter former: the variations before the save; experiments that it lacks are removed.
    mutating func revert(_ profile: UserProfile, to former: [String: String]) {
        endSave(of: profile)
        let key = Key(profile.userID)
        guard var entry = cache.value(key) else { return }
        for experiment in profile.experimentBucketMap.keys { entry.variations[experiment] = former[experiment] }
        entry.exists = !entry.variations.isEmpty
        cache.set(key, entry)
    }

    /// Ends a save that is no longer queued.
    mutating func endSave(of profile: UserProfile) {
        let key = Key(profile.userID)
        guard var pending = pendingSaves[key] else { return }
        pending.events -= 1
        pendingSaves[key] = pending.events > 0 ? pending : nil
    }
}

/// Finds responses that may be outdated: the response to a load that began before a save was settled may lack the save.
///
/// Settlements are numbered. A load remembers the number at its begin, and its response is outdated for users with a
/// later settlement.
struct LoadTracker {
    private var loadsInProgress = 0
    private var settlements = 0
    /// The number of the latest settlement of each user. Emptied when no load is in progress.
    private var latestSettlements: [Key: Int] = [:]

    /// Notes that a load begins.
    ///
    /// - Returns: the number of settlements before the load.
    mutating func begin() -> Int {
        loadsInProgress += 1
        return settlements
    }

    /// Notes that a load has ended.
    mutating func end() {
        loadsInProgress -= 1
        if loadsInProgress == 0 { latestSettlements = [:] }
    }

    /// Makes the responses to the loads in progress outdated for a user, because a save of the user was settled or
    /// profiles were merged.
    mutating func markOutdated(_ user: Key) {
        guard loadsInProgress > 0 else { return }
        settlements += 1
        latestSettlements[user] = settlements
    }

    /// Whether the response to a load may be outdated for a user.
    ///
    /// - Parameter settlementsBefore: the result of ``begin()`` for the load.
    func isOutdated(_ user: Key, since settlementsBefore: Int) -> Bool {
        latestSettlements[user].map { $0 > settlementsBefore } ?? false
    }
}
