import Foundation
import Synchronization

/// A User Profile Service as experiment SDKs want one: they look a user up before they decide, and save what they
/// decided.
///
/// ```swift
/// let profiles = UserProfileService(client: client)
/// try await profiles.load(userIds: ["ada"])
/// let variation = profiles.lookup(userId: "ada")?.experimentBucketMap["7001"]
/// profiles.save(userProfile: UserProfile(userId: "ada", experimentBucketMap: ["7001": "70012"]))
/// ```
///
/// Neither call waits for the network. A user who is not cached is unknown at first and is asked for in the
/// background; should the SDK decide meanwhile, the server keeps the variation that it has, and the next look-up tells
/// it. Saves are kept on disk until the server has them; what it has already is not saved again.
public final class UserProfileService: Sendable {
    public enum Mode: Sendable {
        case lookupAndSave
        /// What is saved reaches the server; nothing is ever looked up.
        case trackingOnly
    }

    /// What is known of a user.
    private struct Entry: Codable {
        var userID: String
        /// By experiment; what was saved here is in it at once.
        var variations: [String: String]
        /// Whether the server knows the user, or will.
        var exists: Bool
        /// When the server said so; seconds since 1970, 0 if it has not.
        var loadedAt: Double
    }

    private struct State {
        var cache: BoundedCache<Entry>
        /// Users to be asked for.
        var wanted: Set<Key> = []
        /// Users who are being asked for.
        var asked: Set<Key> = []
        /// What was saved and is not with the server yet, and in how many events.
        var unsent: [Key: (variations: [String: String], events: Int)] = [:]
        var hasChanged = false
        var reads = Reads()
    }

    /// Look-ups under way. The answer to one that began before a save was settled may not have the save.
    private struct Reads {
        private var underWay = 0
        private var settlements = 0
        /// The users whose saves were settled since the first of the look-ups began, with the number of the settlement.
        private var settled: [Key: Int] = [:]

        /// - Returns: the settlements that the look-up sees.
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
    /// Saves come one after the other; look-ups do not wait for them.
    private let saving = Mutex(())
    private let wanted = Signal()
    private let changed = Signal()

    private static let cacheName = "profiles.cache"
    private static let idsOfRequest = 1_000
    private static let idsWaiting = 100_000
    private static let writeInterval = Duration.seconds(30)

    /// - Parameter preloading: users to be asked for at once, in the background.
    public init(client: HoldfastClient, mode: Mode = .lookupAndSave, preloading userIds: [String] = []) {
        core = client.core
        self.mode = mode
        var state = State(cache: BoundedCache(capacity: core.configuration.cachedProfiles))
        for entry in core.cache.read(Self.cacheName, as: [Entry].self) ?? [] { state.cache.set(Key(entry.userID), entry) }
        for case .save(let profile, _) in core.waiting(.save) + core.waiting(.replacingSave) {
            Self.add(profile, to: &state)
        }
        state.wanted = mode == .trackingOnly ? [] : Set(userIds.prefix(Self.idsWaiting).map { Key($0) })
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

    // MARK: Looking up

    /// What is known of a user here and now.
    ///
    /// - Returns: `nil` for a user of whom nothing is stored, or not known yet; the server is then asked in the
    ///   background. Always `nil` with ``Mode/trackingOnly``.
    public func lookup(userId: String) -> UserProfile? {
        guard mode == .lookupAndSave else { return nil }
        let key = Key(userId)
        let now = core.clock.now.timeIntervalSince1970
        let (entry, isNew) = state.withLock { state -> (Entry?, Bool) in
            let entry = state.cache.value(key)
            if let entry, abs(now - entry.loadedAt) < refreshSeconds { return (entry, false) }
            guard state.wanted.count < Self.idsWaiting, !state.asked.contains(key) else { return (entry, false) }
            return (entry, state.wanted.insert(key).inserted)
        }
        if isNew { wanted.ring() }
        guard let entry, entry.exists else { return nil }
        return UserProfile(userId: userId, experimentBucketMap: entry.variations)
    }

    private var refreshSeconds: Double { core.configuration.profileRefreshInterval.inSeconds }

    /// Asks for users now, so that ``lookup(userId:)`` knows them; in groups of a thousand.
    ///
    /// - Throws: ``HoldfastError``; those whose answer had come are known.
    public func load(userIds: [String]) async throws(HoldfastError) {
        guard !core.isDestroyed else { throw .destroyed }
        guard mode == .lookupAndSave else { return }
        for id in userIds { try HoldfastUser.check(id: id) }
        for start in stride(from: 0, to: userIds.count, by: Self.idsOfRequest) {
            var open = Array(userIds[start..<min(start + Self.idsOfRequest, userIds.count)])
            while !open.isEmpty { open = try await request(open) }
        }
    }

    // MARK: Saving

    /// Keeps what an SDK has decided, and sends it to the server.
    ///
    /// What is new of it does not replace what the server has by then; a variation that is known here and is now
    /// another one does. A profile that the server would refuse is dropped, and told to
    /// ``HoldfastClient/deliveries()``.
    public func save(userProfile: UserProfile) {
        saving.withLock { _ in
            do throws(HoldfastError) {
                try userProfile.check()
            } catch {
                let event = HoldfastEvent.save(userProfile, replacing: false)
                return core.notices.tell(DeliveryNotice(event: event, outcome: .dropped(reason: "\(error)")))
            }
            let known = state.withLock { $0.cache.value(Key(userProfile.userId))?.variations } ?? [:]
            let different = userProfile.experimentBucketMap.filter { known[$0.key]?.hasSameBytes(as: $0.value) != true }
            let replaced = different.filter { mode == .trackingOnly || known[$0.key] != nil }
            for (variations, replacing) in [(different.filter { replaced[$0.key] == nil }, false), (replaced, true)]
            where !variations.isEmpty {
                let part = UserProfile(userId: userProfile.userId, experimentBucketMap: variations)
                // Known before it is sent, so that its delivery cannot be told first.
                state.withLock { Self.add(part, to: &$0) }
                if !core.enqueue(.save(part, replacing: replacing)) {
                    state.withLock { Self.takeBack(part, known, in: &$0) }
                }
            }
            changed.ring()
        }
    }

    private static func add(_ profile: UserProfile, to state: inout State) {
        let key = Key(profile.userId)
        let unsent = state.unsent[key] ?? ([:], 0)
        state.unsent[key] = (unsent.variations.merging(profile.experimentBucketMap) { $1 }, unsent.events + 1)
        var entry = state.cache.value(key) ?? Entry(userID: profile.userId, variations: [:], exists: true, loadedAt: 0)
        entry.variations.merge(profile.experimentBucketMap) { $1 }
        entry.exists = true
        state.cache.set(key, entry)
        state.hasChanged = true
    }

    /// What will not be sent is as unknown as before, so that it is sent when it is saved again.
    private static func takeBack(_ profile: UserProfile, _ known: [String: String], in state: inout State) {
        remove(profile, from: &state)
        let key = Key(profile.userId)
        guard var entry = state.cache.value(key) else { return }
        for experiment in profile.experimentBucketMap.keys { entry.variations[experiment] = known[experiment] }
        entry.exists = !entry.variations.isEmpty
        state.cache.set(key, entry)
    }

    private static func remove(_ profile: UserProfile, from state: inout State) {
        let key = Key(profile.userId)
        guard let unsent = state.unsent[key] else { return }
        state.unsent[key] = unsent.events > 1 ? (unsent.variations, unsent.events - 1) : nil
    }

    /// What the server made of a save is asked for: it may have kept what it had.
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
            state.reads.settle(Key(profile.userId))
            guard mode == .lookupAndSave, state.wanted.count < Self.idsWaiting else { return false }
            return state.wanted.insert(Key(profile.userId)).inserted
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

    /// Asks for the users that are wanted.
    ///
    /// - Returns: after which time to ask for more; zero when none is wanted.
    private func loadWanted(_ backoff: inout Backoff) async -> Duration {
        while !Task.isCancelled {
            // Taken out before the server is asked: whose save is settled meanwhile is asked for again.
            let ids = state.withLock { state in
                state.asked = Set(state.wanted.prefix(Self.idsOfRequest))
                state.wanted.subtract(state.asked)
                return Array(state.asked)
            }
            defer { state.withLock { $0.asked = [] } }
            guard !ids.isEmpty else { return .zero }
            // An id that the server would refuse keeps no other from being asked for.
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

    /// - Returns: the users whose answer may be older than a save of theirs, and is not used.
    private func request(_ userIDs: [String]) async throws(HoldfastError) -> [String] {
        let seen = state.withLock { $0.reads.begin() }
        defer { state.withLock { $0.reads.end() } }
        let body = try HoldfastServer.encode(Users(userIDs: userIDs))
        let answer = try await core.server.request("POST", "v1/profiles/lookup", body: body)
        let profiles = try HoldfastServer.decode(Profiles.self, answer.body).profiles
        guard profiles.count == userIDs.count else { throw .invalidAnswer("it has not a profile for each user") }
        let now = core.clock.now.timeIntervalSince1970
        let outdated = state.withLock { state in
            var outdated: [String] = []
            for (id, profile) in zip(userIDs, profiles) {
                guard !state.reads.isOutdated(Key(id), seen) else {
                    outdated.append(id)
                    continue
                }
                let unsent = state.unsent[Key(id)]?.variations
                let variations = (profile?.experimentBucketMap ?? [:]).merging(unsent ?? [:]) { $1 }
                let exists = profile != nil || unsent != nil
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
