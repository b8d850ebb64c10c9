import Foundation

/// The profiles that a client has cached or saved. All ``UserProfileService`` of the client share them: a profile that
/// one has saved can be looked up by the others, and repeated saves are recognized even if another service saved in
/// between.
final class SharedProfiles: Sendable {
    private let core: ClientCore
    private let state: Locked<ProfileCache>
    /// Serializes saves; lookups do not take it.
    private let saving = Locked(())
    private let wanted = Signal()
    private let changed = Signal()
    /// The listeners that are registered with the client.
    private let registrations = OwnedTokens()

    private static let cacheName = "profiles.cache"
    private static let idsOfRequest = 1_000
    private static let idsWaiting = 100_000
    private static let usersOfAnApp = 10

    init(core: ClientCore) {
        self.core = core
        var state = ProfileCache(cache: BoundedCache(capacity: core.configuration.cachedProfiles))
        for entry in core.cache.read(Self.cacheName, as: [ProfileCache.Entry].self) ?? [] {
            state.cache.set(Key(entry.userID), entry)
        }
        for case .save(let profile, _) in core.waiting(.save) + core.waiting(.replacingSave) {
            state.add(profile)
        }
        self.state = Locked(state)
        registrations.add(core.notices.observe { [weak self] in self?.settled($0) })
        registrations.add(core.whenSaving(after: changed) { [weak self] in self?.write() })
        registrations.add(
            core.start { [weak self, wanted, core] in
                var backoff = Backoff()
                while !Task.isCancelled {
                    guard let rest = await self?.loadWanted(&backoff) else { return }
                    if rest > .zero { try? await core.clock.sleep(for: rest) } else { await wanted.wait() }
                }
            })
    }

    deinit {
        write()
    }

    /// Adds profiles from the app's former storage, and loads users in the background from now on.
    ///
    /// - Parameter userIDs: users to load at once.
    func lookUp(_ preloaded: [UserProfile], _ userIDs: [String]) {
        state.withLock { state in
            for profile in preloaded { state.preload(profile) }
            state.looksUp = true
            state.wanted.formUnion(userIDs.prefix(Self.idsWaiting).map { Key($0) })
        }
        wanted.ring()
    }

    /// Adds profiles from the app's former storage.
    func preload(_ profiles: [UserProfile]) {
        state.withLock { state in
            for profile in profiles { state.preload(profile) }
        }
    }

    // MARK: Lookup

    /// See ``UserProfileService/lookup(userID:)``.
    func lookup(_ userID: String) -> UserProfile? {
        let key = Key(userID)
        let now = core.clock.now.timeIntervalSince1970
        let (entry, overrides, isNew) = state.withLock { state -> (ProfileCache.Entry?, [String: String]?, Bool) in
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

    /// See ``UserProfileService/load(userIDs:)``.
    func load(_ userIDs: [String]) async throws(HoldfastError) {
        for id in userIDs { try HoldfastUser.check(id: id) }
        for start in stride(from: 0, to: userIDs.count, by: Self.idsOfRequest) {
            var open = Array(userIDs[start..<min(start + Self.idsOfRequest, userIDs.count)])
            while !open.isEmpty { open = try await request(open) }
        }
    }

    /// See ``UserProfileService/override(_:userID:)``.
    func override(_ variations: [String: String]?, _ userID: String) {
        state.withLock { $0.overrides[Key(userID)] = variations }
    }

    // MARK: Save

    /// See ``UserProfileService/save(userProfile:)``.
    ///
    /// - Parameter replacing: whether also a new assignment replaces one that the server has stored meanwhile.
    func save(_ userProfile: UserProfile, replacing replacesAll: Bool) {
        saving.withLock { _ in
            do throws(HoldfastError) {
                try userProfile.check()
            } catch {
                let event = HoldfastEvent.save(userProfile, replacing: false)
                return core.notices.notify(
                    DeliveryNotice(event: event, outcome: .dropped(reason: .invalid(error.localizedDescription))))
            }
            let key = Key(userProfile.userID)
            let (known, overrides) = state.withLock {
                ($0.cache.value(key)?.variations ?? [:], $0.overrides[key] ?? [:])
            }
            let different = userProfile.experimentBucketMap.filter { experiment, variation in
                // An SDK saves the profile that it has looked up. Overrides in it must not be sent to the server.
                known[experiment]?.hasSameBytes(as: variation) != true
                    && overrides[experiment]?.hasSameBytes(as: variation) != true
            }
            let replaced = different.filter { replacesAll || known[$0.key] != nil }
            for (variations, replacing) in [(different.filter { replaced[$0.key] == nil }, false), (replaced, true)]
            where !variations.isEmpty {
                let part = UserProfile(userID: userProfile.userID, experimentBucketMap: variations)
                // Cached before it is queued, because its delivery may be reported at once.
                state.withLock { $0.add(part) }
                if !core.enqueue(.save(part, replacing: replacing)) {
                    state.withLock { $0.takeBack(part, known) }
                }
            }
            changed.ring()
        }
    }

    /// Reloads the user after a save, because the server may have kept another variation.
    private func settled(_ notice: DeliveryNotice) {
        if case .login(let login) = notice.event, case .delivered = notice.outcome { return reload(login.userID) }
        guard case .save(let profile, _) = notice.event else { return }
        var isDropped = false
        switch notice.outcome {
        case .delivered, .refused: break
        case .dropped where notice.wasKept: isDropped = true
        case .dropped, .postponed: return
        }
        let isWanted = state.withLock { state in
            if isDropped { state.takeBack(profile, [:]) } else { state.remove(profile) }
            state.loads.settle(Key(profile.userID))
            guard state.looksUp, state.wanted.count < Self.idsWaiting else { return false }
            return state.wanted.insert(Key(profile.userID)).inserted
        }
        if isWanted { wanted.ring() }
    }

    /// Reloads a cached user whose profile the server has merged with that of the anonymous user.
    private func reload(_ userID: String) {
        let isWanted = state.withLock { state in
            state.loads.settle(Key(userID))
            guard state.looksUp, state.cache.value(Key(userID)) != nil else { return false }
            return state.wanted.insert(Key(userID)).inserted
        }
        if isWanted { wanted.ring() }
    }

    // MARK: The server

    /// Loads the wanted users.
    ///
    /// - Returns: the pause before the next attempt; zero if no user is wanted.
    private func loadWanted(_ backoff: inout Backoff) async -> Duration {
        while !Task.isCancelled {
            // Removed before the request, so that a user whose save is settled meanwhile is loaded again.
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
                let open = valid.isEmpty ? [] : try await requestAllowed(valid.map(\.string))
                state.withLock { $0.wanted.formUnion(open.map { Key($0) }) }
            } catch {
                core.log(.warning, "profiles could not be loaded", ["error": error.localizedDescription])
                state.withLock { $0.wanted.formUnion(valid) }
                if case .unavailable(_, let retryAfter) = error { return backoff.failed(retryAfter: retryAfter) }
                return backoff.failed()
            }
            backoff.succeeded()
        }
        return .zero
    }

    /// Requests users. If the token may not read all of them, requests them one by one, because the token of an app may
    /// read its own users.
    private func requestAllowed(_ userIDs: [String]) async throws(HoldfastError) -> [String] {
        do throws(HoldfastError) {
            return try await request(userIDs)
        } catch .unauthorized where (2...Self.usersOfAnApp).contains(userIDs.count) {
            var open: [String] = []
            for userID in userIDs {
                do throws(HoldfastError) { open += try await request([userID]) } catch .unauthorized {}
            }
            return open
        }
    }

    /// - Returns: the users whose response may be older than their last save and was ignored.
    private func request(_ userIDs: [String]) async throws(HoldfastError) -> [String] {
        let seen = state.withLock { $0.loads.begin() }
        defer { state.withLock { $0.loads.end() } }
        let profiles = try await core.server.profiles(of: userIDs)
        let now = core.clock.now.timeIntervalSince1970
        let outdated = state.withLock { state in
            var outdated: [String] = []
            for (id, profile) in zip(userIDs, profiles) {
                guard !state.loads.isOutdated(Key(id), seen) else {
                    outdated.append(id)
                    continue
                }
                let unsent = state.unsent[Key(id)]?.variations
                let preloaded = state.preloaded[Key(id)]
                let variations = (preloaded ?? [:]).merging(profile?.experimentBucketMap ?? [:]) { $1 }
                    .merging(unsent ?? [:]) { $1 }
                let exists = profile != nil || unsent != nil || preloaded != nil
                state.cache.set(
                    Key(id), ProfileCache.Entry(userID: id, variations: variations, exists: exists, loadedAt: now))
            }
            state.hasChanged = true
            return outdated
        }
        changed.ring()
        return outdated
    }

    private func write() {
        let entries = state.withLock { state -> [ProfileCache.Entry]? in
            guard state.hasChanged, !core.isDestroyed else { return nil }
            state.hasChanged = false
            return state.cache.all.map(\.value)
        }
        if let entries { core.cache.write(Self.cacheName, entries) }
    }
}

/// Keeps shared profiles only as long as a service uses them.
struct WeakProfiles {
    weak var shared: SharedProfiles?
}
