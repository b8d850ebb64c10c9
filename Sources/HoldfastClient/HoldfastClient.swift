import Foundation

/// An app's connection to a Holdfast server: flags and variations of one user, experiments, exposures and goals.
///
/// ```swift
/// let client = try HoldfastClient(
///     configuration: HoldfastConfiguration(endpoint: URL(string: "http://127.0.0.1:8080")!))
/// try await client.initialize(user: HoldfastUser(id: "ada", attributes: ["country": "de"]))
/// if client.boolVariation(featureId: "new-checkout", defaultValue: false) {
///     client.track(goal: "saw-new-checkout")
/// }
/// ```
///
/// Flags are answered from memory, in less than a microsecond and without waiting for anything. What the app reports
/// is kept on disk before a call returns, and sent in groups; see ``deliveries()`` for what becomes of it.
///
/// All methods may be called from any thread. One client at a time may use a directory; a client that is let go of
/// without ``destroy()`` destroys itself.
public final class HoldfastClient: Sendable {
    let core: ClientCore
    let flags: FlagSource
    private let fetches: SingleFlight<HoldfastError?>

    /// Opens the cache and the queue; nothing is sent yet but what an earlier run has left.
    ///
    /// - Parameters:
    ///   - transport: what carries requests; by default `URLSession`.
    ///   - clock: by default the system's.
    /// - Throws: ``HoldfastError/invalidConfiguration(_:)``, ``HoldfastError/directoryInUse(_:)``,
    ///   ``HoldfastError/storage(_:)``.
    public init(
        configuration: HoldfastConfiguration, transport: (any HoldfastTransport)? = nil,
        clock: any HoldfastClock = SystemClock()
    ) throws(HoldfastError) {
        core = try ClientCore(configuration, transport: transport ?? URLSessionTransport(), clock: clock)
        flags = FlagSource(core: core)
        fetches = SingleFlight { [flags] in await flags.fetch() }
    }

    deinit {
        destroy()
    }

    /// As it was given.
    public var configuration: HoldfastConfiguration { core.configuration }

    // MARK: The user

    /// What flags are answered from after ``HoldfastClient/initialize(user:timeout:)``.
    public enum Freshness: Sendable, Equatable {
        /// The server has answered.
        case server
        /// The server was late; what it said in an earlier run is used until it answers.
        case cache
        /// The server was late and nothing is cached of this user; calls answer their defaults until it answers.
        case nothing
    }

    /// Begins with a user, or goes on with another one, whose flags take the place of the former's at once: those that an
    /// earlier run has cached, or none. Listeners are told which change.
    ///
    /// - Parameter timeout: after this time the call returns, and the server's answer is used when it comes.
    /// - Throws: ``HoldfastError/invalidArgument(_:)`` for what is no user id, ``HoldfastError/destroyed``. A server
    ///   that cannot be reached is no error: it is asked again each minute, and ``fetchError`` says why.
    @discardableResult
    public func initialize(
        user: HoldfastUser, timeout: Duration = .seconds(5)
    ) async throws(HoldfastError) -> Freshness {
        try HoldfastUser.check(id: user.id)
        guard !core.isDestroyed else { throw .destroyed }
        if flags.begin(user) {
            core.start { [flags, fetches] in await flags.poll { await fetches.run() } }
        }
        let outcome = await value(within: timeout, core.clock) { [fetches] in await fetches.run() }
        flags.startListening { [fetches] in await fetches.run() }
        if case .some(.none) = outcome { return .server }
        return flags.evaluations == nil ? .nothing : .cache
    }

    /// Why flags could not be fetched for the current user the last time; `nil` when they could, or when the server has
    /// not answered yet.
    public var fetchError: HoldfastError? { flags.failure }

    /// Whom flags are evaluated for; `nil` before ``initialize(user:timeout:)``.
    public var currentUser: HoldfastUser? { flags.user }

    /// Evaluates flags with other attributes from now on: asks the server at once, and until it answers flags are as
    /// they were. To store attributes on the server use ``AttributeService``.
    public func updateUserAttributes(_ attributes: [String: AttributeValue]) {
        flags.setAttributes(attributes)
        Task { [fetches] in await fetches.run() }
    }

    // MARK: Keeping up to date

    /// Asks the server for the flags as they are now.
    ///
    /// - Parameter timeout: after this time the call throws; the answer is used when it comes all the same.
    /// - Throws: ``HoldfastError``; flags are then as they were.
    public func fetchEvaluations(timeout: Duration = .seconds(30)) async throws(HoldfastError) {
        guard !core.isDestroyed else { throw .destroyed }
        let outcome = await value(within: timeout, core.clock) { [fetches] in await fetches.run() }
        guard let outcome else { throw Task.isCancelled ? .cancelled : .timedOut }
        if let error = outcome { throw error }
    }

    /// Has a function called with the keys of flags whenever some have changed, on no particular thread.
    @discardableResult
    public func addUpdateListener(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        flags.observe(listener)
    }

    /// The keys of flags whenever some have changed, from now on.
    public func updates() -> AsyncStream<Set<String>> {
        let (stream, continuation) = AsyncStream<Set<String>>.makeStream(bufferingPolicy: .bufferingNewest(100))
        let token = flags.observe { continuation.yield($0) }
        continuation.onTermination = { _ in token.cancel() }
        return stream
    }

    /// The app is not seen any more: polls less often, hangs up, and sends what waits.
    public func enterBackground() {
        guard flags.setBackground(true) else { return }
        flags.stopListening()
        Task { [core] in try? await core.flush() }
    }

    /// The app is seen again: polls as usual, at once if it is overdue, and listens for changes.
    public func enterForeground() {
        guard flags.setBackground(false) else { return }
        flags.startListening { [fetches] in await fetches.run() }
    }

    // MARK: Reporting

    /// Reports that the current user has reached a goal. Without a user nothing is reported.
    ///
    /// - Parameters:
    ///   - goal: as the server knows it.
    ///   - value: what it was worth, if that can be said: finite.
    ///   - tags: whatever else is to be kept with it.
    public func track(goal: String, value: Double? = nil, tags: [String: JSONValue]? = nil) {
        guard let user = flags.user else { return }
        track(goal: goal, value: value, tags: tags, userID: user.id)
    }

    /// Reports that a user has reached a goal, for a server app with many users.
    public func track(goal: String, value: Double? = nil, tags: [String: JSONValue]? = nil, userID: String) {
        core.enqueue(
            .goal(
                GoalEvent(
                    id: UUID(), userID: userID, goal: goal, value: value, timestamp: core.clock.now.rfc3339, tags: tags,
                    sdkKey: core.configuration.tag)))
    }

    /// Reports that a user really met a variation. The first report of a user and an experiment counts; repeats do no
    /// harm. Flags report by themselves.
    ///
    /// - Parameters:
    ///   - experiment: its key or id.
    ///   - variationID: by default the one that the server has stored.
    ///   - userID: by default the current user; without one nothing is reported.
    /// - Returns: whether the report is kept until the server has it.
    @discardableResult
    public func reportExposure(experiment: String, variationID: String? = nil, userID: String? = nil) -> Bool {
        guard let userID = userID ?? flags.user?.id else { return false }
        return core.enqueue(
            .exposure(
                Exposure(
                    userID: userID, experiment: experiment, variationID: variationID,
                    timestamp: core.clock.now.rfc3339, sdkKey: core.configuration.tag)))
    }

    /// What becomes of events, from now on: delivered, refused, dropped, or to be sent again. A reader that is slow
    /// misses the oldest of more than a thousand.
    public func deliveries() -> AsyncStream<DeliveryNotice> {
        core.notices.stream()
    }

    /// Events that wait on disk.
    public var waitingEvents: Int { core.waitingEvents }

    /// Sends all that waits now.
    ///
    /// - Throws: why events still wait; they are sent later.
    public func flush() async throws(HoldfastError) {
        try await core.flush()
    }

    /// Ends all work and lets go of the directory. What waits is on disk, and is sent by the next client that uses it.
    public func destroy() {
        flags.stopListening()
        core.destroy()
    }
}
