/// Users before and after they log in.
extension HoldfastClient {
    /// Id of the user who has not logged in: `anonymous-` and a random UUID, the same over all runs until
    /// ``logout(attributes:timeout:)``. It is kept in the client's directory. Whoever knows it can merge this user into
    /// an account: treat it as a secret of the device.
    public var anonymousUserID: String { core.anonymousID(renewing: false) }

    /// Sets the anonymous user as current user; see ``initialize(user:timeout:)``.
    @discardableResult
    public func initializeAnonymously(
        attributes: [String: UserAttributeValue] = [:], timeout: Duration = .seconds(5)
    ) async throws(HoldfastError) -> Freshness {
        try await initialize(user: HoldfastUser(id: anonymousUserID, attributes: attributes), timeout: timeout)
    }

    /// Sets a user who has logged in as current user. If the anonymous user was used since the last login, as current
    /// user or by a ``SplitTestService`` before there was a user, the server merges the anonymous user into the
    /// account. The account gets the assignments, exposures, goals and attributes of the anonymous user, except where
    /// it has its own.
    ///
    /// The login is queued on disk and sent after the anonymous user's events, even if the server cannot be reached now
    /// or the app ends. On a full disk the login is dropped and reported like any event. Until it is sent, the flags of
    /// the anonymous user stay. Afterwards the account has the variations of the anonymous user, except in experiments
    /// in which the account already had a variation.
    ///
    /// - Parameter timeout: longest time to wait for the flags.
    /// - Throws: as ``initialize(user:timeout:)``.
    @discardableResult
    public func login(
        userID: String, attributes: [String: UserAttributeValue] = [:], timeout: Duration = .seconds(5)
    ) async throws(HoldfastError) -> Freshness {
        let user = HoldfastUser(id: userID, attributes: attributes)
        try HoldfastUser.check(id: userID)
        guard !core.isDestroyed else { throw .destroyed }
        try begin(user, isLogin: true)
        return await freshness(timeout)
    }

    /// Replaces ``HoldfastConfiguration/token`` for all requests from now on. After a login, an app sets the signed
    /// token of its identity provider, and sets it again whenever the token is renewed. After a logout, the app sets
    /// its own token. A signed token names a user. If the server maps the token to the scope `client`,
    /// ``UserProfileService`` can load and save the profile of this user.
    ///
    /// - Throws: ``HoldfastError/invalidArgument(_:)`` unless the token consists of visible ASCII characters.
    public func setToken(_ token: String?) throws(HoldfastError) {
        guard HoldfastConfiguration.isToken(token) else {
            throw .invalidArgument("token must consist of visible ASCII characters")
        }
        core.server.token.withLock { $0 = token }
        core.server.savesOwnProfiles.isSet = false
    }

    /// Sets a new anonymous user as current user, so that the next person on the device does not share a user with the
    /// former one.
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
