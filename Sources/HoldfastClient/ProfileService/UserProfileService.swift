import Foundation
import Synchronization

/// A User Profile Service for experiment SDKs, which look up a user before a decision and save the decision after it.
///
/// ```swift
/// let profiles = UserProfileService(client: client)
/// try await profiles.load(userIDs: ["ada"])
/// let variation = profiles.lookup(userID: "ada")?.experimentBucketMap["7001"]
/// profiles.save(userProfile: UserProfile(userID: "ada", experimentBucketMap: ["7001": "70012"]))
/// ```
///
/// Neither call waits for the network. The lookup of a user who is not cached returns `nil` and loads the user in the
/// background. If the SDK decides meanwhile, the server keeps the variation that it has stored, and the next lookup
/// returns it. Saves are queued on disk until the server has them. Unchanged assignments are not saved again.
public final class UserProfileService: Sendable {
    public enum Mode: Sendable {
        case lookupAndSave
        /// Saves only; ``UserProfileService/lookup(userID:)`` always returns `nil`.
        case trackingOnly
    }

    /// The cached profile of a user.
    private struct Entry: Codable {
        var userID: String
        /// Variation ids by experiment id, including saves that are not delivered yet.
        var variations: [String: String]
        /// Whether the server has the user, or will once all saves are delivered.
        var exists: Bool
        /// Time of the server's response in seconds since 1970; 0 before the first one.
        var loadedAt: Double
    }

    private struct State {
        var cache: BoundedCache<Entry>
        /// Users to load.
        var wanted: Set<Key> = []
        /// Users being loaded.
        var asked: Set<Key> = []
        /// Assignments in undelivered saves, and the number of those saves.
        var unsent: [Key: (variations: [String: String], events: Int)] = [:]
        var hasChanged = false
        /// Variation ids by experiment id that the app had already; the server's have precedence.
        var preloaded: [Key: [String: String]] = [:]
        /// Variation ids by experiment id that an app has set for a user.
        var overrides: [Key: [String: String]] = [:]
        var reads = Reads()
    }

    /// Tracks loads in progress. The response to a load that began before a save was settled may lack the save.
    private struct Reads {
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

    private let core: ClientCore
    private let mode: Mode
    private let state: Mutex<State>
    /// Serializes saves; lookups do not take it.
    private let saving = Mutex(())
    private let wanted = Signal()
    private let changed = Signal()

    private static let cacheName = "profiles.cache"
    private static let idsOfRequest = 1_000
    private static let idsWaiting = 100_000
    private static let writeInterval = Duration.seconds(30)

    /// - Parameters:
    ///   - preloaded: profiles that the app has already. The server's assignments have precedence once they are loaded.
    ///   - preloading: users to load at once, in the background.
    public init(
        client: HoldfastClient, mode: Mode = .lookupAndSave, preloaded: [UserProfile] = [],
        preloading userIDs: [String] = []
    ) {
        core = client.core
        self.mode = mode
        var state = State(cache: BoundedCache(capacity: core.configuration.cachedProfiles))
        for entry in core.cache.read(Self.cacheName, as: [Entry].self) ?? [] {
            state.cache.set(Key(entry.userID), entry)
        }
        state.preloaded = Dictionary(preloaded.map { (Key($0.userID), $0.experimentBucketMap) }) { _, last in last }
        for profile in preloaded where state.cache.value(Key(profile.userID)) == nil {
            // Loaded at no time: a lookup asks the server.
            let entry = Entry(
                userID: profile.userID, variations: profile.experimentBucketMap, exists: true, loadedAt: 0)
            state.cache.set(Key(profile.userID), entry)
        }
        for case .save(let profile, _) in core.waiting(.save) + core.waiting(.replacingSave) {
            Self.add(profile, to: &state)
        }
        state.wanted = mode == .trackingOnly ? [] : Set(userIDs.prefix(Self.idsWaiting).map { Key($0) })
        self.state = Mutex(state)
        core.notices.observe { [weak self] in self?.settled($0) }
        core.beforeDestroy { [weak self] in self?.write() }
        core.start { [weak self, wanted, core] in
            var backoff = Backoff()
            while !Task.isCancelled {
                guard let rest = await self?.loadWanted(&backoff) else { return }
                if rest > .zero { try? await core.clock.sleep(for: rest) } else { await wanted.wait() }
            }
        }
        core.start { [weak self, changed, core] in
            while !Task.isCancelled {
                await changed.wait()
                try? await core.clock.sleep(for: Self.writeInterval)
                self?.write()
            }
        }
        wanted.ring()
    }

    // MARK: Lookup

    /// Returns the cached profile of a user.
    ///
    /// - Returns: `nil` for a user without profile, or one that is not loaded yet and is now loaded in the background.
    ///   Always `nil` with ``Mode/trackingOnly``.
    public func lookup(userID: String) -> UserProfile? {
        guard mode == .lookupAndSave else { return nil }
        let key = Key(userID)
        let now = core.clock.now.timeIntervalSince1970
        let (entry, overrides, isNew) = state.withLock { state -> (Entry?, [String: String]?, Bool) in
            let entry = state.cache.value(key)
            let overrides = state.overrides.isEmpty ? nil : state.overrides[key]
            if let entry, abs(now - entry.loadedAt) < refreshSeconds { return (entry, overrides, false) }
            guard state.wanted.count < Self.idsWaiting, !state.asked.contains(key) else {
                return (entry, overrides, false)
            }
            return (entry, overrides, state.wanted.insert(key).inserted)
        }
        if isNew { wanted.ring() }
        let stored = entry.flatMap { $0.exists ? $0.variations : nil }
        guard let variations = overrides.map({ $0.merging(stored ?? [:]) { own, _ in own } }) ?? stored else {
            return nil
        }
        return UserProfile(userID: userID, experimentBucketMap: variations)
    }

    private var refreshSeconds: Double { core.configuration.profileRefreshInterval.inSeconds }

    /// Loads users into the cache, 1,000 per request.
    ///
    /// - Throws: ``HoldfastError``; users of completed requests are cached.
    public func load(userIDs: [String]) async throws(HoldfastError) {
        guard !core.isDestroyed else { throw .destroyed }
        guard mode == .lookupAndSave else { return }
        for id in userIDs { try HoldfastUser.check(id: id) }
        for start in stride(from: 0, to: userIDs.count, by: Self.idsOfRequest) {
            var open = Array(userIDs[start..<min(start + Self.idsOfRequest, userIDs.count)])
            while !open.isEmpty { open = try await request(open) }
        }
    }

    /// Sets variations of a user on this device that precede what is stored, until the process ends. They are neither
    /// saved nor sent to the server; an administrator overrides variations there.
    ///
    /// - Parameter variations: variation ids by experiment id; `nil` removes the overrides.
    public func override(_ variations: [String: String]?, userID: String) {
        state.withLock { $0.overrides[Key(userID)] = variations }
    }

    // MARK: Save

    /// Caches an SDK's decisions and queues them for the server.
    ///
    /// A new assignment does not replace one that the server has stored meanwhile; a changed assignment does. An
    /// invalid profile is dropped and reported by ``HoldfastClient/deliveries()``.
    public func save(userProfile: UserProfile) {
        saving.withLock { _ in
            do throws(HoldfastError) {
                try userProfile.check()
            } catch {
                let event = HoldfastEvent.save(userProfile, replacing: false)
                return core.notices.notify(
                    DeliveryNotice(event: event, outcome: .dropped(reason: .invalid("\(error)"))))
            }
            let key = Key(userProfile.userID)
            let (known, overrides) = state.withLock {
                ($0.cache.value(key)?.variations ?? [:], $0.overrides[key] ?? [:])
            }
            let different = userProfile.experimentBucketMap.filter { experiment, variation in
                // An SDK saves what it has looked up: overrides stay on the device.
                known[experiment]?.hasSameBytes(as: variation) != true
                    && overrides[experiment]?.hasSameBytes(as: variation) != true
            }
            let replaced = different.filter { mode == .trackingOnly || known[$0.key] != nil }
            for (variations, replacing) in [(different.filter { replaced[$0.key] == nil }, false), (replaced, true)]
            where !variations.isEmpty {
                let part = UserProfile(userID: userProfile.userID, experimentBucketMap: variations)
                // Cached before it is queued, so that its delivery cannot be reported first.
                state.withLock { Self.add(part, to: &$0) }
                if !core.enqueue(.save(part, replacing: replacing)) {
                    state.withLock { Self.takeBack(part, known, in: &$0) }
                }
            }
            changed.ring()
        }
    }

    private static func add(_ profile: UserProfile, to state: inout State) {
        let key = Key(profile.userID)
        let unsent = state.unsent[key] ?? ([:], 0)
        state.unsent[key] = (unsent.variations.merging(profile.experimentBucketMap) { $1 }, unsent.events + 1)
        var entry = state.cache.value(key) ?? Entry(userID: profile.userID, variations: [:], exists: true, loadedAt: 0)
        entry.variations.merge(profile.experimentBucketMap) { $1 }
        entry.exists = true
        state.cache.set(key, entry)
        state.hasChanged = true
    }

    /// Reverts assignments that will not be sent, so that a repeated save sends them.
    private static func takeBack(_ profile: UserProfile, _ known: [String: String], in state: inout State) {
        remove(profile, from: &state)
        let key = Key(profile.userID)
        guard var entry = state.cache.value(key) else { return }
        for experiment in profile.experimentBucketMap.keys { entry.variations[experiment] = known[experiment] }
        entry.exists = !entry.variations.isEmpty
        state.cache.set(key, entry)
    }

    private static func remove(_ profile: UserProfile, from state: inout State) {
        let key = Key(profile.userID)
        guard let unsent = state.unsent[key] else { return }
        state.unsent[key] = unsent.events > 1 ? (unsent.variations, unsent.events - 1) : nil
    }

    /// Reloads the user after a save, because the server may have kept another variation.
    private func settled(_ notice: DeliveryNotice) {
        guard case .save(let profile, _) = notice.event else { return }
        var isDropped = false
        switch notice.outcome {
        case .delivered, .refused: break
        case .dropped where notice.wasKept: isDropped = true
        case .dropped, .postponed: return
        }
        let isWanted = state.withLock { state in
            if isDropped { Self.takeBack(profile, [:], in: &state) } else { Self.remove(profile, from: &state) }
            state.reads.settle(Key(profile.userID))
            guard mode == .lookupAndSave, state.wanted.count < Self.idsWaiting else { return false }
            return state.wanted.insert(Key(profile.userID)).inserted
        }
        if isWanted { wanted.ring() }
    }

    // MARK: The server

    private struct Users: Encodable {
        var userIDs: [String]

        private enum CodingKeys: String, CodingKey {
            case userIDs = "user_ids"
        }
    }

    private struct Profiles: Decodable {
        var profiles: [UserProfile?]
    }

    /// Loads the wanted users.
    ///
    /// - Returns: the pause before the next attempt; zero if no user is wanted.
    private func loadWanted(_ backoff: inout Backoff) async -> Duration {
        while !Task.isCancelled {
            // Removed before the request: a user whose save is settled meanwhile is loaded again.
            let ids = state.withLock { state in
                state.asked = Set(state.wanted.prefix(Self.idsOfRequest))
                state.wanted.subtract(state.asked)
                return Array(state.asked)
            }
            defer { state.withLock { $0.asked = [] } }
            guard !ids.isEmpty else { return .zero }
            // An invalid id must not fail the request for the others.
            let valid = ids.filter { (try? HoldfastUser.check(id: $0.string)) != nil }
            do throws(HoldfastError) {
                let open = valid.isEmpty ? [] : try await request(valid.map(\.string))
                state.withLock { $0.wanted.formUnion(open.map { Key($0) }) }
            } catch {
                state.withLock { $0.wanted.formUnion(valid) }
                if case .unavailable(_, let retryAfter) = error { return backoff.failed(retryAfter: retryAfter) }
                return backoff.failed()
            }
            backoff.succeeded()
        }
        return .zero
    }

    /// - Returns: the users whose response may be older than their last save and was ignored.
    private func request(_ userIDs: [String]) async throws(HoldfastError) -> [String] {
        let seen = state.withLock { $0.reads.begin() }
        defer { state.withLock { $0.reads.end() } }
        let body = try HoldfastServer.encode(Users(userIDs: userIDs))
        let response = try await core.server.request("POST", "v1/profiles/lookup", body: body)
        let profiles = try HoldfastServer.decode(Profiles.self, response.body).profiles
        guard profiles.count == userIDs.count else { throw .invalidResponse("the response lacks profiles") }
        let now = core.clock.now.timeIntervalSince1970
        let outdated = state.withLock { state in
            var outdated: [String] = []
            for (id, profile) in zip(userIDs, profiles) {
                guard !state.reads.isOutdated(Key(id), seen) else {
                    outdated.append(id)
                    continue
                }
                let unsent = state.unsent[Key(id)]?.variations
                let preloaded = state.preloaded[Key(id)]
                let variations = (preloaded ?? [:]).merging(profile?.experimentBucketMap ?? [:]) { $1 }
                    .merging(unsent ?? [:]) { $1 }
                let exists = profile != nil || unsent != nil || preloaded != nil
                state.cache.set(Key(id), Entry(userID: id, variations: variations, exists: exists, loadedAt: now))
            }
            state.hasChanged = true
            return outdated
        }
        changed.ring()
        return outdated
    }

    private func write() {
        let entries = state.withLock { state -> [Entry]? in
            guard state.hasChanged, !core.isDestroyed else { return nil }
            state.hasChanged = false
            return state.cache.all.map(\.value)
        }
        if let entries { core.cache.write(Self.cacheName, entries) }
    }
}
