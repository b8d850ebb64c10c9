import Foundation

/// The user profiles that a client has loaded or saved.
///
/// All ``UserProfileService`` of a client share one instance: a profile that one service has saved can be looked up by
/// the others, and a repeated save is recognized even if another service saved in between.
///
/// | file | content |
/// | --- | --- |
/// | `SharedProfiles.swift` | lookups, overrides, and the cache file |
/// | `SharedProfiles+Saving.swift` | queues changed assignments, and follows their delivery |
/// | `SharedProfiles+Loading.swift` | loads users from the server |
///
/// A lookup never waits: it returns the cached profile, and requests a load if the profile is absent or old. One
/// background task loads the requested users.
final class SharedProfiles: Sendable {
    let core: ClientCore
    let state: Locked<ProfileCache>
    /// Serializes saves, so that the queue has their order. Lookups do not take this lock.
    let saving = Locked(())
    /// Wakes the background task. Rung when ``ProfileCache/requestedUsers`` has a new user.
    let loadRequested = Signal()
    /// Rung when the cache differs from its file, which is then written after a delay.
    let cacheChanged = Signal()
    /// The observers and tasks that end with this object.
    private let registrations = OwnedTokens()

    private static let cacheName = "profiles.cache"

    /// Reads the cache file, adds the saves that are still queued, and starts the background task.
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
        registrations.add(core.notices.observe { [weak self] notice in self?.follow(notice) })
        registrations.add(core.whenSaving(after: cacheChanged) { [weak self] in self?.writeCache() })
        registrations.add(
            core.start { [weak self, loadRequested, core] in
                var backoff = Backoff()
                while !Task.isCancelled {
                    guard let pause = await self?.loadRequestedUsers(&backoff) else { return }
                    if pause > .zero { try? await core.clock.sleep(for: pause) } else { await loadRequested.wait() }
                }
            })
    }

    deinit {
        writeCache()
    }

    /// Prepares lookups for a new service: adds profiles, requests users, and from now on reloads users whose profile
    /// may have changed on the server.
    ///
    /// - Parameters:
    ///   - preloaded: profiles from the app's former storage.
    ///   - userIDs: the users to load at once.
    func enableLookups(preloaded: [UserProfile], loading userIDs: [String]) {
        preload(preloaded)
        state.withLock { state in
            state.isLookupEnabled = true
            state.requestedUsers.formUnion(userIDs.prefix(ProfileCache.maximumRequests).map { Key($0) })
        }
        loadRequested.ring()
    }

    /// Adds profiles from the app's former storage.
    func preload(_ profiles: [UserProfile]) {
        state.withLock { state in
            for profile in profiles { state.preload(profile) }
        }
    }

    // MARK: Lookup

    /// What a lookup has found, and whether it was the first to request the user.
    private struct Found {
        var entry: ProfileCache.Entry?
        var overrides: [String: String]?
        var isNewRequest: Bool
    }

    /// See ``UserProfileService/lookup(userID:)``.
    func lookup(_ userID: String) -> UserProfile? {
        let key = Key(userID)
        let now = core.clock.now.timeIntervalSince1970
        let found = state.withLock { state -> Found in
            let entry = state.cache.value(key)
            // The age may be negative, because the clock may have been set back.
            let isFresh = entry.map { abs(now - $0.loadedAt) < refreshSeconds } ?? false
            return Found(
                entry: entry, overrides: state.overrides.isEmpty ? nil : state.overrides[key],
                isNewRequest: !isFresh && !state.usersInRequest.contains(key) && state.requestUser(key))
        }
        if found.isNewRequest { loadRequested.ring() }
        let stored = found.entry.flatMap { $0.exists ? $0.variations : nil }
        guard let overrides = found.overrides else {
            return stored.map { UserProfile(userID: userID, experimentBucketMap: $0) }
        }
        let variations = overrides.merging(stored ?? [:]) { override, _ in override }
        return UserProfile(userID: userID, experimentBucketMap: variations)
    }

    /// The age in seconds at which a lookup refreshes a cached profile.
    private var refreshSeconds: Double { core.configuration.profileRefreshInterval.inSeconds }

    /// See ``UserProfileService/override(_:userID:)``.
    func override(_ variations: [String: String]?, _ userID: String) {
        state.withLock { $0.overrides[Key(userID)] = variations }
    }

    // MARK: The cache file

    /// Writes the cache file if the cache has changed. A destroyed client no longer owns the directory, so it does not
    /// write.
    private func writeCache() {
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
