/// The profiles that a client has cached, the saves that are not delivered yet, and the users that are to be loaded.
struct ProfileCache {
    /// The cached profile of a user.
    struct Entry: Codable {
        var userID: String
        /// Variation ids by experiment id, including saves that are not delivered yet.
        var variations: [String: String]
        /// Whether the server has the user, or will once all saves are delivered.
        var exists: Bool
        /// Time of the server's response in seconds since 1970; 0 before the first one.
        var loadedAt: Double
    }

    var cache: BoundedCache<Entry>
    /// The users to load.
    var wanted: Set<Key> = []
    /// The users that are being loaded.
    var asked: Set<Key> = []
    /// Assignments in undelivered saves, and the number of those saves.
    var unsent: [Key: (variations: [String: String], events: Int)] = [:]
    var hasChanged = false
    /// Variation ids by experiment id from the app's former storage. Those of the server have precedence.
    var preloaded: [Key: [String: String]] = [:]
    /// Variation ids by experiment id that an app has set for a user.
    var overrides: [Key: [String: String]] = [:]
    var loads = LoadTracker()
    /// Whether any service looks up users, so that those who may have changed are loaded.
    var looksUp = false

    /// Adds a profile from the app's former storage.
    mutating func preload(_ profile: UserProfile) {
        let key = Key(profile.userID)
        preloaded[key] = profile.experimentBucketMap
        // Not marked as loaded, so that a lookup queries the server.
        var entry = cache.value(key) ?? Entry(userID: profile.userID, variations: [:], exists: true, loadedAt: 0)
        guard entry.loadedAt == 0 else { return }
        entry.variations = profile.experimentBucketMap.merging(entry.variations) { $1 }
        cache.set(key, entry)
    }

    /// Adds a save that is queued.
    mutating func add(_ profile: UserProfile) {
        let key = Key(profile.userID)
        let former = unsent[key] ?? ([:], 0)
        unsent[key] = (former.variations.merging(profile.experimentBucketMap) { $1 }, former.events + 1)
        var entry = cache.value(key) ?? Entry(userID: profile.userID, variations: [:], exists: true, loadedAt: 0)
        entry.variations.merge(profile.experimentBucketMap) { $1 }
        entry.exists = true
        cache.set(key, entry)
        hasChanged = true
    }

    /// Reverts assignments that will not be sent, so that a repeated save sends them.
    mutating func takeBack(_ profile: UserProfile, _ known: [String: String]) {
        remove(profile)
        let key = Key(profile.userID)
        guard var entry = cache.value(key) else { return }
        for experiment in profile.experimentBucketMap.keys { entry.variations[experiment] = known[experiment] }
        entry.exists = !entry.variations.isEmpty
        cache.set(key, entry)
    }

    /// Removes a save that is settled.
    mutating func remove(_ profile: UserProfile) {
        let key = Key(profile.userID)
        guard let former = unsent[key] else { return }
        unsent[key] = former.events > 1 ? (former.variations, former.events - 1) : nil
    }
}

/// Tracks loads in progress. The response to a load that began before a save was settled may lack the save.
struct LoadTracker {
    private var underWay = 0
    private var settlements = 0
    /// Users whose saves were settled since the first of these loads began, with the number of the settlement.
    private var settled: [Key: Int] = [:]

    /// - Returns: the number of settlements before the load.
    mutating func begin() -> Int {
        underWay += 1
        return settlements
    }

    mutating func end() {
        underWay -= 1
        if underWay == 0 { settled = [:] }
    }

    mutating func settle(_ user: Key) {
        guard underWay > 0 else { return }
        settlements += 1
        settled[user] = settlements
    }

    func isOutdated(_ user: Key, _ seen: Int) -> Bool {
        settled[user].map { $0 > seen } ?? false
    }
}
