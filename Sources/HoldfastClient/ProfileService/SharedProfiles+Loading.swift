import Foundation

/// Loads of users: by ``UserProfileService/load(userIDs:)``, and in the background for lookups and saves that have
/// requested users.
extension SharedProfiles {
    /// The server's limit of users in a request.
    private static let usersPerRequest = 1_000
    /// The number of users up to which a refused request is repeated for each user. An app has few users, but a server
    /// with a wrong token may have thousands, and must not send a request for each.
    private static let usersOfAnApp = 10

    /// See ``UserProfileService/load(userIDs:)``.
    func load(_ userIDs: [String]) async throws(HoldfastError) {
        for id in userIDs { try HoldfastUser.check(id: id) }
        for start in stride(from: 0, to: userIDs.count, by: Self.usersPerRequest) {
            var remaining = Array(userIDs[start..<min(start + Self.usersPerRequest, userIDs.count)])
            while !remaining.isEmpty { remaining = try await loadOnce(remaining) }
        }
    }

    /// Loads the requested users, until none is left or a request fails.
    ///
    /// - Returns: the pause before the next attempt; zero if no user is requested.
    func loadRequestedUsers(_ backoff: inout Backoff) async -> Duration {
        while !Task.isCancelled {
            // Removed before the request, so that a user whose save is settled meanwhile is loaded again.
            let users = state.withLock { state in
                state.usersInRequest = Set(state.requestedUsers.prefix(Self.usersPerRequest))
                state.requestedUsers.subtract(state.usersInRequest)
                return Array(state.usersInRequest)
            }
            defer { state.withLock { $0.usersInRequest = [] } }
            guard !users.isEmpty else { return .zero }
            // An invalid id must not fail the request for the others.
            let valid = users.filter { (try? HoldfastUser.check(id: $0.string)) != nil }
            do throws(HoldfastError) {
                let remaining = valid.isEmpty ? [] : try await loadPermitted(valid.map(\.string))
                state.withLock { $0.requestedUsers.formUnion(remaining.map { Key($0) }) }
            } catch {
                core.log(.warning, "profiles could not be loaded", ["error": error.localizedDescription])
                state.withLock { $0.requestedUsers.formUnion(valid) }
                if case .unavailable(_, let retryAfter) = error { return backoff.failed(retryAfter: retryAfter) }
                return backoff.failed()
            }
            backoff.succeeded()
        }
        return .zero
    }

    /// Loads users. If the token may not read all of them, loads them one by one, because the token of an app may read
    /// only its own users.
    ///
    /// - Returns: the users to load again; see ``loadOnce(_:)``.
    private func loadPermitted(_ userIDs: [String]) async throws(HoldfastError) -> [String] {
        do throws(HoldfastError) {
            return try await loadOnce(userIDs)
        } catch .unauthorized where (2...Self.usersOfAnApp).contains(userIDs.count) {
            var remaining: [String] = []
            for userID in userIDs {
                do throws(HoldfastError) { remaining += try await loadOnce([userID]) } catch .unauthorized {}
            }
            return remaining
        }
    }

    /// Loads users by one request, and caches their profiles.
    ///
    /// - Returns: the users to load again: a save of theirs was settled during the request, so the response may be
    ///   older than the save, and was ignored.
    private func loadOnce(_ userIDs: [String]) async throws(HoldfastError) -> [String] {
        let settlementsBefore = state.withLock { $0.loads.begin() }
        defer { state.withLock { $0.loads.end() } }
        let profiles = try await core.server.profiles(of: userIDs)
        let now = core.clock.now.timeIntervalSince1970
        let outdated = state.withLock { state in
            var outdated: [String] = []
            for (userID, profile) in zip(userIDs, profiles) {
                if state.loads.isOutdated(Key(userID), since: settlementsBefore) {
                    outdated.append(userID)
                } else {
                    state.setLoaded(profile, of: userID, at: now)
                }
            }
            state.hasChanged = true
            return outdated
        }
        cacheChanged.ring()
        return outdated
    }
}
