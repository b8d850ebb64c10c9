/// Users before and after they log in.
extension HoldfastClient {
    /// Id of the user who has not logged in: random, the same over all runs, until ``logout(attributes:timeout:)``. It is
    /// kept in the client's directory.
    public var anonymousUserID: String { core.anonymousID(renewing: false) }

    /// Sets the anonymous user as current user; see ``initialize(user:timeout:)``.
    @discardableResult
    public func initializeAnonymously(
        attributes: [String: UserAttributeValue] = [:], timeout: Duration = .seconds(5)
    ) async throws(HoldfastError) -> Freshness {
        try await initialize(user: HoldfastUser(id: anonymousUserID, attributes: attributes), timeout: timeout)
    }

    /// Sets a user who has logged in as current user. The variations that the anonymous user has seen become the
    /// account's, except in experiments where the account has a variation already.
    ///
    /// Exposures, goals and attributes of the anonymous user are not moved: the client does not call the server's
    /// `POST /v1/profiles/{user_id}/merge`. A backend that handles the login should, once the client has sent its events.
    ///
    /// - Parameter timeout: longest time to wait for the flags, and before that for the variations to be saved. If the
    ///   server is late, they are saved when it can be reached.
    /// - Throws: as ``initialize(user:timeout:)``.
    @discardableResult
    public func login(
        userID: String, attributes: [String: UserAttributeValue] = [:], timeout: Duration = .seconds(5)
    ) async throws(HoldfastError) -> Freshness {
        try HoldfastUser.check(id: userID)
        guard !core.isDestroyed else { throw .destroyed }
        if currentUser?.id == anonymousUserID, let seen = flags.evaluations?.seenVariations, !seen.isEmpty {
            core.enqueue(.save(UserProfile(userID: userID, experimentBucketMap: seen), replacing: false))
            // The flags of the account depend on it.
            _ = await value(within: timeout, core.clock) { [core] in await core.flush(.save) }
        }
        return try await initialize(user: HoldfastUser(id: userID, attributes: attributes), timeout: timeout)
    }

    /// Sets a new anonymous user as current user. The next person on the device has nothing in common with the former.
    ///
    /// - Throws: as ``initialize(user:timeout:)``.
    @discardableResult
    public func logout(
        attributes: [String: UserAttributeValue] = [:], timeout: Duration = .seconds(5)
    ) async throws(HoldfastError) -> Freshness {
        guard !core.isDestroyed else { throw .destroyed }
        let user = HoldfastUser(id: core.anonymousID(renewing: true), attributes: attributes)
        return try await initialize(user: user, timeout: timeout)
    }
}
