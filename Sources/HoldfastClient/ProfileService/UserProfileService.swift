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
/// returns it. Saves are queued on disk until the server has them. Unchanged assignments are not saved again. Several
/// services of one client share what they have loaded and saved.
///
/// An app's token of scope `client` suffices for the anonymous user of the device
/// (``HoldfastClient/anonymousUserID``), and a signed token of the app's identity provider for the user whom it names
/// (``HoldfastClient/setToken(_:)``). For any other user, as in a server app, the token must have the scope `write`.
public final class UserProfileService: Sendable {
    /// The operations of the service.
    public enum Mode: Sendable {
        /// Looks up and saves profiles.
        case lookupAndSave
        /// Saves only; ``UserProfileService/lookup(userID:)`` always returns `nil`.
        case trackingOnly
    }

    private let core: ClientCore
    private let mode: Mode
    private let profiles: SharedProfiles

    /// - Parameters:
    ///   - preloaded: profiles from the app's former storage. The server's assignments have precedence once they are
    ///     loaded.
    ///   - preloading: users to load at once, in the background.
    public init(
        client: HoldfastClient, mode: Mode = .lookupAndSave, preloaded: [UserProfile] = [],
        preloading userIDs: [String] = []
    ) {
        core = client.core
        self.mode = mode
        profiles = client.sharedProfiles
        switch mode {
        case .lookupAndSave: profiles.enableLookups(preloaded: preloaded, loading: userIDs)
        case .trackingOnly: profiles.preload(preloaded)
        }
    }

    /// The client's logger.
    public var logger: HoldfastLogger? { core.configuration.logger }

    /// Returns the cached profile of a user.
    ///
    /// - Returns: `nil` if the user has no profile, or if the user is not loaded yet. A user who is not loaded yet is
    ///   then loaded in the background. With ``Mode/trackingOnly`` the result is always `nil`.
    public func lookup(userID: String) -> UserProfile? {
        mode == .lookupAndSave ? profiles.lookup(userID) : nil
    }

    /// Loads users into the cache, 1,000 per request.
    ///
    /// - Throws: ``HoldfastError``; users of completed requests are cached.
    public func load(userIDs: [String]) async throws(HoldfastError) {
        guard !core.isDestroyed else { throw .destroyed }
        if mode == .lookupAndSave { try await profiles.load(userIDs) }
    }

    /// Sets variations of a user that take precedence over stored ones on this device, until the process ends. They are
    /// neither saved nor sent to the server; an administrator overrides variations there.
    ///
    /// - Parameter variations: variation ids by experiment id; `nil` removes the overrides.
    public func override(_ variations: [String: String]?, userID: String) {
        profiles.override(variations, userID)
    }

    /// Caches an SDK's decisions and queues them for the server.
    ///
    /// A new assignment does not replace one that the server has stored meanwhile; a changed assignment does. An
    /// invalid profile is dropped and reported by ``HoldfastClient/deliveries()``.
    public func save(userProfile: UserProfile) {
        profiles.save(userProfile, replacing: mode == .trackingOnly)
    }
}
