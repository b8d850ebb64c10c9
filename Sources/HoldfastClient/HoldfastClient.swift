import Foundation

/// A connection to a Holdfast server: evaluates flags for one user and reports exposures and goals.
///
/// ```swift
/// let client = try HoldfastClient(
///     configuration: HoldfastConfiguration(endpoint: URL(string: "http://127.0.0.1:8080")!))
/// try await client.initialize(user: HoldfastUser(id: "ada", attributes: ["country": "de"]))
/// if client.boolVariation(flagKey: "new-checkout", defaultValue: false) {
///     client.track(goalID: "saw-new-checkout")
/// }
/// ```
///
/// Flags are read from memory in less than a microsecond. Events are written to disk before a call returns, and sent in
/// batches; ``deliveries()`` reports their outcomes.
///
/// All methods may be called from any thread. Only one client at a time may use a directory. A client that is released
/// without ``destroy()`` destroys itself.
public final class HoldfastClient: Sendable {
    let core: ClientCore
    let flags: FlagSource
    /// The definitions of attributes, for all ``AttributeService`` of the client.
    let attributeDefinitions: AttributeDefinitions
    /// Runs the fetches of the flags, one at a time.
    private let fetches: SingleFlight<HoldfastError?>
    /// How long a fetch waits for an earlier one to end. After it both run, because the earlier one may be stuck.
    private static let fetchPatience = Duration.seconds(3)
    /// `nil` until ``sentAttributes`` is first used.
    private let attributes = Locked<SentAttributes?>(nil)
    private let profiles = Locked(WeakProfiles())
    /// The observers of the app's life cycle.
    let observers = OwnedTokens()

    /// Opens the cache and the event queue, and starts to deliver events of earlier runs.
    ///
    /// - Parameters:
    ///   - transport: by default `URLSession`. Closed with the client: give each client its own.
    ///   - clock: by default the system clock.
    /// - Throws: ``HoldfastError/invalidConfiguration(_:)``, ``HoldfastError/directoryInUse(_:)``,
    ///   ``HoldfastError/storage(_:)``.
    public init(
        configuration: HoldfastConfiguration, transport: (any HoldfastTransport)? = nil,
        clock: any HoldfastClock = SystemClock()
    ) throws(HoldfastError) {
        core = try ClientCore(configuration, transport: transport ?? URLSessionTransport(), clock: clock)
        flags = FlagSource(core: core)
        attributeDefinitions = AttributeDefinitions(core: core)
        fetches = SingleFlight(patience: .init(longest: Self.fetchPatience, clock: clock)) { [flags] in
            await flags.fetch()
        }
        // `sentAttributes` must exist before the first delivery of attributes, because it follows the delivery's
        // outcome.
        if !core.waiting(.attributes).isEmpty { _ = sentAttributes }
        core.startDelivering()
        if configuration.followsLifecycle { followSystem() }
    }

    deinit {
        destroy()
    }

    /// The attributes that the client has sent, for all its ``AttributeService``. They are read from disk at the first
    /// access.
    var sentAttributes: SentAttributes {
        attributes.withLock { attributes in
            if let attributes { return attributes }
            let new = SentAttributes(core: core) { [flags, fetches] userID in
                // With the new attributes the user may be in other audiences.
                guard flags.user?.id.hasSameBytes(as: userID) == true else { return }
                Task { await fetches.run() }
            }
            attributes = new
            return new
        }
    }

    /// The profiles of all ``UserProfileService`` of the client. They are released with the last service.
    var sharedProfiles: SharedProfiles {
        profiles.withLock { profiles in
            if let shared = profiles.shared { return shared }
            let new = SharedProfiles(core: core)
            profiles.shared = new
            return new
        }
    }

    /// The configuration of the client.
    public var configuration: HoldfastConfiguration { core.configuration }

    // MARK: The user

    /// Where the flags come from after ``HoldfastClient/initialize(user:timeout:)``, with the error if they are not up
    /// to date.
    public enum Freshness: Sendable, Equatable {
        /// The server responded in time.
        case server
        /// The evaluations of an earlier run, until a poll succeeds.
        case cache(HoldfastError)
        /// Nothing is cached for this user: calls return ``HoldfastConfiguration/bootstrap`` or their defaults until a
        /// poll succeeds.
        case nothing(HoldfastError)

        /// Why the flags are not up to date; `nil` if they are.
        public var error: HoldfastError? {
            switch self {
            case .server: nil
            case .cache(let error), .nothing(let error): error
            }
        }
    }

    /// Sets the current user without waiting. When this returns, the user's cached flags have replaced the flags of a
    /// former user, and listeners are notified of the difference. The flags are fetched in the background.
    ///
    /// The first user of a client takes over the variations of the anonymous user, as with
    /// ``login(userID:attributes:timeout:)``.
    ///
    /// - Throws: ``HoldfastError/invalidArgument(_:)`` for an invalid user id, ``HoldfastError/destroyed``.
    public func start(user: HoldfastUser) throws(HoldfastError) {
        try begin(user)
        fetchInBackground(replacing: true)
    }

    /// Sets the current user and waits until the flags are fetched or the time is over; see ``start(user:)``.
    ///
    /// An unreachable server is not an error of this call: ``Freshness/error`` has the reason, polling retries each
    /// minute, and a later response is still used.
    ///
    /// - Throws: ``HoldfastError/invalidArgument(_:)`` for an invalid user id, ``HoldfastError/destroyed``.
    @discardableResult
    public func initialize(
        user: HoldfastUser, timeout: Duration = .seconds(5)
    ) async throws(HoldfastError) -> Freshness {
        try begin(user)
        return await freshness(timeout)
    }

    /// Fetches the flags of a new user, and returns where they come from.
    func freshness(_ timeout: Duration) async -> Freshness {
        guard let error = await firstFetch(timeout) else { return .server }
        return flags.evaluations?.isFetched == true ? .cache(error) : .nothing(error)
    }

    /// Sets the current user, and starts to poll with the first user.
    ///
    /// - Parameter isLogin: whether the anonymous user has logged in as this user. The first user of a client counts as
    ///   logged in, too, if the anonymous user was used before, as by a ``SplitTestService``.
    func begin(_ user: HoldfastUser, isLogin: Bool = false) throws(HoldfastError) {
        try HoldfastUser.check(id: user.id)
        guard !core.isDestroyed else { throw .destroyed }
        var joinedID: String?
        if isLogin || currentUser == nil, let anonymousID = core.usedAnonymousID,
            !anonymousID.hasSameBytes(as: user.id)
        {
            join(anonymousID, to: user.id)
            joinedID = anonymousID
        }
        if user.id.hasSameBytes(as: core.anonymousID(renewing: false)) { core.noteAnonymousUse(of: user.id) }
        let isFirst = flags.begin(user, after: joinedID)
        if isFirst { core.start { [flags, fetches] in await flags.poll { await fetches.run() } } }
    }

    /// Queues the login by which the server merges the anonymous user into an account, and fetches the flags once it is
    /// sent: attributes of the anonymous user may change the account's flags.
    private func join(_ anonymousID: String, to userID: String) {
        core.enqueue(LoginEvent(userID: userID, anonymousID: anonymousID))
        Task { [weak self, core] in
            if (try? await core.flush()) != nil { self?.fetchInBackground(replacing: false) }
        }
    }

    /// Fetches the flags without waiting, and listens for changes.
    ///
    /// - Parameter replacing: whether the user has changed, so that fetches in progress are cancelled.
    func fetchInBackground(replacing: Bool) {
        Task { [fetches] in await fetches.run(replacing: replacing) }
        listen()
    }

    /// Listens for changes of flags if the configuration says so.
    func listen() {
        flags.startListening { [fetches] in await fetches.run() }
    }

    /// Fetches the flags of a new user, and cancels fetches for the former user.
    ///
    /// - Returns: the error of the fetch, or ``HoldfastError/timedOut``.
    func firstFetch(_ timeout: Duration) async -> HoldfastError? {
        let outcome = await value(within: timeout, core.clock) { [fetches] in await fetches.run(replacing: true) }
        listen()
        guard let outcome else { return Task.isCancelled ? .cancelled : .timedOut }
        return outcome
    }

    /// Why the last fetch for the current user failed; `nil` after a success or before the first response.
    public var fetchError: HoldfastError? { flags.failure }

    /// The current user; `nil` before ``initialize(user:timeout:)``.
    public var currentUser: HoldfastUser? { flags.user }

    /// Replaces the attributes with which flags are evaluated, and fetches the flags. Attributes are not stored on the
    /// server; see ``AttributeService`` for that. Without a current user it only logs a warning.
    public func updateUserAttributes(_ attributes: [String: UserAttributeValue]) {
        guard flags.setAttributes(attributes) else {
            return core.log(.warning, "attributes not updated: there is no current user")
        }
        Task { [fetches] in await fetches.run(replacing: true) }
    }

    // Disfavored, so that a dictionary literal has values of type `UserAttributeValue`.
    @_disfavoredOverload
    public func updateUserAttributes(_ attributes: [String: String]) {
        updateUserAttributes(attributes.mapValues { UserAttributeValue.string($0) })
    }

    // MARK: Updates

    /// Fetches the flags now.
    ///
    /// - Parameter timeout: after this time the call throws; a later response is still used.
    /// - Throws: ``HoldfastError``; the flags stay as they were.
    public func fetchEvaluations(timeout: Duration = .seconds(30)) async throws(HoldfastError) {
        guard !core.isDestroyed else { throw .destroyed }
        let outcome = await value(within: timeout, core.clock) { [fetches] in await fetches.run() }
        guard let outcome else { throw Task.isCancelled ? .cancelled : .timedOut }
        if let error = outcome { throw error }
    }

    /// Calls a function with the keys of changed flags, on an arbitrary thread: after a poll, a fetch or a change of
    /// user.
    ///
    /// - Returns: a token with which the listener can be removed.
    @discardableResult
    public func addUpdateListener(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        flags.addAppListener(listener)
    }

    /// Calls a function on the main actor with the keys of changed flags; see ``addUpdateListener(_:)``. Once it is
    /// removed on the main actor it is not called any more.
    @discardableResult
    public func addMainActorUpdateListener(
        _ listener: @escaping @MainActor @Sendable (Set<String>) -> Void
    ) -> ListenerToken {
        flags.addMainActorAppListener(listener)
    }

    /// Removes a listener, as ``ListenerToken/cancel()`` does.
    public func removeUpdateListener(_ token: ListenerToken) {
        token.cancel()
    }

    /// Removes all listeners of the app. Streams and services of this library go on.
    public func clearUpdateListeners() {
        flags.clearAppListeners()
    }

    /// Calls a function after each fetch and poll with its error, `nil` after a success, on an arbitrary thread.
    @discardableResult
    public func addFetchListener(_ listener: @escaping @Sendable (HoldfastError?) -> Void) -> ListenerToken {
        flags.observeFetches(listener)
    }

    /// Returns a stream of the keys of changed flags, which ends with the client.
    public func updates() -> AsyncStream<Set<String>> {
        flags.updates()
    }

    /// Adds a listener of the library's own, which ``clearUpdateListeners()`` keeps.
    func observeFlags(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        flags.observe(listener)
    }

    /// Calls a function when the client is destroyed. If it is destroyed already, the function is called at once.
    func observeEnd(_ listener: @escaping @Sendable () -> Void) -> ListenerToken {
        flags.observeEnd(listener)
    }

    // MARK: Reporting

    /// Reports that the current user reached a goal. Without a current user it only logs a warning.
    ///
    /// - Parameters:
    ///   - goalID: the goal's name on the server.
    ///   - value: the value of the conversion, such as a price; must be finite.
    ///   - tags: further data to store with the event.
    public func track(goalID: String, value: Double? = nil, tags: [String: HoldfastValue]? = nil) {
        guard let user = flags.user else {
            return core.log(.warning, "goal not reported: there is no current user", ["goal": goalID])
        }
        track(goalID: goalID, value: value, tags: tags, userID: user.id)
    }

    /// Reports that a user reached a goal, for server apps with many users.
    public func track(goalID: String, value: Double? = nil, tags: [String: HoldfastValue]? = nil, userID: String) {
        core.enqueue(
            .goal(
                GoalEvent(
                    id: UUID(), userID: userID, goalID: goalID, value: value, timestamp: core.server.now.rfc3339,
                    tags: tags,
                    sdkKey: core.configuration.sdkKey)))
    }

    /// Reports that a user saw a variation. The server counts the first exposure of a user to an experiment. Evaluating
    /// a flag reports by itself.
    ///
    /// - Parameters:
    ///   - experiment: key or id of the experiment.
    ///   - variationID: id of the variation.
    ///   - variationKey: key of the variation. An event with neither an id nor a key is about the variation that the
    ///     server has stored for the user.
    ///   - userID: by default the current user.
    /// - Returns: whether the event was queued; `false` without a user.
    @discardableResult
    public func reportExposure(
        experiment: String, variationID: String? = nil, variationKey: String? = nil, userID: String? = nil
    ) -> Bool {
        guard let userID = userID ?? flags.user?.id else { return false }
        return core.enqueue(
            .exposure(
                ExposureEvent(
                    userID: userID, experiment: experiment, variationID: variationID, variationKey: variationKey,
                    timestamp: core.server.now.rfc3339, sdkKey: core.configuration.sdkKey)))
    }

    /// Returns a stream of future delivery outcomes: delivered, refused, dropped or postponed. It buffers the newest
    /// 1,000, and ends with the client.
    public func deliveries() -> AsyncStream<DeliveryNotice> {
        core.notices.stream { $0 }
    }

    /// The number of events in the queue, and the outcomes of deliveries since the client was created.
    public var queueMetrics: QueueMetrics { core.queueMetrics }

    /// Number of queued events.
    public var waitingEvents: Int { core.waitingEvents }

    /// Sends all queued events now.
    ///
    /// - Throws: the reason why events are still queued. When the calling task is cancelled, throws
    ///   ``HoldfastError/cancelled``, and the events are sent later.
    public func flush() async throws(HoldfastError) {
        flags.reportCounts()
        try await core.flush()
    }

    /// Ends all work and releases the directory. Queued events stay on disk and are sent by the next client that uses
    /// it.
    public func destroy() {
        flags.stopListening()
        flags.reportCounts()
        core.destroy()
        flags.end()
        endShared()
    }
}
