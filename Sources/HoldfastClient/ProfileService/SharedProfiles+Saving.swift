import Foundation

/// Saves: only changed assignments are queued, and a save whose delivery has ended is followed by a load.
extension SharedProfiles {
    /// See ``UserProfileService/save(userProfile:)``.
    ///
    /// - Parameter replacesAll: whether assignments that are new to the cache replace assignments that the server has
    ///   stored. Changed assignments always replace them.
    func save(_ userProfile: UserProfile, replacing replacesAll: Bool) {
        // Serializes saves, so that two saves do not queue the same change.
        saving.withLock { _ in
            guard isValid(userProfile) else { return }
            let key = Key(userProfile.userID)
            let (cached, overrides) = state.withLock { state in
                (state.cache.value(key)?.variations ?? [:], state.overrides[key] ?? [:])
            }
            let changed = userProfile.experimentBucketMap.filter { experiment, variation in
                // An SDK saves the whole profile that it has looked up. The overrides in it must not reach the server.
                cached[experiment]?.hasSameBytes(as: variation) != true
                    && overrides[experiment]?.hasSameBytes(as: variation) != true
            }
            let replaced = changed.filter { replacesAll || cached[$0.key] != nil }
            let added = changed.filter { replaced[$0.key] == nil }
            enqueue(added, of: userProfile.userID, replacing: false, cached: cached)
            enqueue(replaced, of: userProfile.userID, replacing: true, cached: cached)
            cacheChanged.ring()
        }
    }

    /// Whether the server could store a profile. An invalid profile is reported as a dropped event.
    private func isValid(_ userProfile: UserProfile) -> Bool {
        do throws(HoldfastError) {
            try userProfile.check()
            return true
        } catch {
            let event = HoldfastEvent.save(userProfile, replacing: false)
            let outcome = DeliveryNotice.Outcome.dropped(reason: .invalid(error.localizedDescription))
            core.notices.notify(DeliveryNotice(event: event, outcome: outcome))
            return false
        }
    }

    /// Caches assignments and queues them as one event.
    ///
    /// - Parameter cached: the variations before, to which the cache returns if the queue does not take the event.
    private func enqueue(
        _ variations: [String: String], of userID: String, replacing: Bool, cached: [String: String]
    ) {
        guard !variations.isEmpty else { return }
        let change = UserProfile(userID: userID, experimentBucketMap: variations)
        // Cached before the event is queued, because its delivery may be reported at once.
        state.withLock { $0.add(change) }
        if !core.enqueue(.save(change, replacing: replacing)) {
            state.withLock { $0.revert(change, to: cached) }
        }
    }

    // MARK: Outcomes of deliveries

    /// Updates the cache after the delivery of an event that changes profiles.
    func follow(_ notice: DeliveryNotice) {
        switch (notice.event, notice.outcome) {
        case (.login(let login), .delivered):
            reloadAfterMerge(login.userID)
        case (.save(let profile, _), .delivered), (.save(let profile, _), .refused):
            settle(profile, isDropped: false)
        case (.save(let profile, _), .dropped) where notice.wasKept:
            settle(profile, isDropped: true)
        default:
            // A postponed save is still queued. A save that never was in the queue is reverted by `enqueue`.
            break
        }
    }

    /// Ends a queued save, and loads the user, because the server may have kept another variation.
    ///
    /// - Parameter isDropped: whether the save was removed from the full queue. Its assignments are then forgotten, so
    ///   that a repeated save sends them.
    private func settle(_ profile: UserProfile, isDropped: Bool) {
        let key = Key(profile.userID)
        let isNewRequest = state.withLock { state in
            if isDropped { state.revert(profile, to: [:]) } else { state.endSave(of: profile) }
            state.loads.markOutdated(key)
            return state.isLookupEnabled && state.requestUser(key)
        }
        if isNewRequest { loadRequested.ring() }
    }

    /// Loads a cached user again after the server has merged the profile of the anonymous user into it.
    private func reloadAfterMerge(_ userID: String) {
        let key = Key(userID)
        let isNewRequest = state.withLock { state in
            state.loads.markOutdated(key)
            guard state.isLookupEnabled, state.cache.value(key) != nil else { return false }
            return state.requestedUsers.insert(key).inserted
        }
        if isNewRequest { loadRequested.ring() }
    }
}
