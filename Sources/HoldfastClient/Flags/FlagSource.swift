import Foundation

/// Keeps the current user's evaluations up to date by polling, and by fetching when the server announces a change.
final class FlagSource: Sendable {
    struct State {
        var user: HoldfastUser?
        /// Id of the anonymous user before the login, until the server has merged the two.
        var anonymousID: String?
        /// Error of the last fetch.
        var failure: HoldfastError?
        var isInBackground = false
        var schedule = PollSchedule()
        var lastAttempt = Date.distantPast
        var delay = Duration.zero
        var listening: Task<Void, Never>?
        /// The number of fetches that have started, and the number of the latest that has ended. The result of an
        /// earlier one that ends after it is discarded.
        var fetches = 0
        var lastEnded = 0
    }

    let core: ClientCore
    let state = Locked(State())
    /// The current evaluations. They have their own lock, because every evaluation reads them.
    private let current = Locked<Evaluations?>(nil)
    /// Serializes changes of the user, the evaluations and their cache, so that all three always belong to one user.
    private let changing = Locked(())
    private let scheduleChanged = Signal()
    private let listeners = Listeners<Set<String>>()
    private let appListeners = Listeners<Set<String>>()
    private let fetchListeners = Listeners<HoldfastError?>()
    private let revisionListeners = Listeners<Void>()
    private let userListeners = Listeners<Void>()
    let counts = EvaluationCounts()

    private let cache: EvaluationCache
    /// The overrides in memory; `nil` until ``overrides`` has read them from disk.
    let chosen = Locked<[String: HoldfastValue]?>(nil)

    /// The server's limit of counts in a report.
    private static let countsOfReport = 1_000

    init(core: ClientCore) {
        self.core = core
        cache = EvaluationCache(disk: core.cache, limit: core.configuration.cachedUsers)
    }

    var user: HoldfastUser? { state.withLock { $0.user } }

    /// Error of the user's last fetch; `nil` after a success or before the first response.
    var failure: HoldfastError? { state.withLock { $0.failure } }

    @inline(__always)
    var evaluations: Evaluations? { current.withLock { $0 } }

    /// Adds a listener of the library's own, which ``clearAppListeners()`` keeps.
    func observe(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        listeners.add(listener)
    }

    func addAppListener(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        appListeners.add(listener)
    }

    func addMainActorAppListener(_ listener: @escaping @MainActor @Sendable (Set<String>) -> Void) -> ListenerToken {
        // A call may be on its way to the main actor when the listener is removed.
        let isRemoved = SharedFlag(false)
        let token = appListeners.add({ keys in
            Task { @MainActor in if !isRemoved.isSet { listener(keys) } }
        }) { isRemoved.isSet = true }
        return ListenerToken {
            isRemoved.isSet = true
            token.cancel()
        }
    }

    func clearAppListeners() { appListeners.removeAll() }

    /// Adds a listener that is called with the error of each fetch, `nil` after a success.
    func observeFetches(_ listener: @escaping @Sendable (HoldfastError?) -> Void) -> ListenerToken {
        fetchListeners.add(listener)
    }

    /// Adds a listener that is called when the client is destroyed, at once if it was.
    func observeEnd(_ listener: @escaping @Sendable () -> Void) -> ListenerToken {
        listeners.add({ _ in }, end: listener)
    }

    /// Adds a listener that is called when the server has another datafile.
    func observeRevisions(_ listener: @escaping @Sendable () -> Void) -> ListenerToken {
        revisionListeners.add { _ in listener() }
    }

    /// Adds a listener that is called after another user has become the current one.
    func observeUsers(_ listener: @escaping @Sendable () -> Void) -> ListenerToken {
        userListeners.add { _ in listener() }
    }

    func updates() -> AsyncStream<Set<String>> {
        listeners.stream(buffering: 100) { $0 }
    }

    /// Ends all streams, and releases the listeners of the app, which may own the client.
    func end() {
        listeners.end()
        appListeners.removeAll()
        fetchListeners.removeAll()
    }

    private func notify(_ changed: Set<String>) {
        guard !changed.isEmpty else { return }
        listeners.notify(changed)
        appListeners.notify(changed)
    }

    // MARK: The user

    /// Switches to a user and notifies listeners of the flags that change.
    ///
    /// - Parameter anonymousID: the current user, who has logged in as this one: the flags stay until they are fetched.
    /// - Returns: whether it is the first user.
    func begin(_ user: HoldfastUser, after anonymousID: String? = nil) -> Bool {
        let (former, changed) = changing.withLock { _ -> (HoldfastUser?, Set<String>?) in
            let former = self.user
            let isSame = former?.id.hasSameBytes(as: user.id) == true
            // Another thread may have changed the user since the login began.
            let isLogin = anonymousID.map { former?.id.hasSameBytes(as: $0) == true } ?? false
            let content = isSame ? nil : cached(user.id) ?? (isLogin ? kept(for: user.id) : nil)
            let known = isSame ? nil : snapshot(content, of: user.id)
            let changed = state.withLock { state -> Set<String>? in
                state.user = user
                state.anonymousID = anonymousID ?? core.anonymousID(joining: user.id)
                state.failure = nil
                // The caller makes the first fetch, so the next poll is due after the interval.
                state.lastAttempt = core.clock.now
                state.delay = interval(state)
                return isSame ? nil : Evaluations.changes(from: show(known), to: known)
            }
            return (former, changed)
        }
        if let changed {
            notify(changed)
            userListeners.notify(())
        }
        return former == nil
    }

    /// - Returns: the former evaluations.
    private func show(_ evaluations: Evaluations?) -> Evaluations? {
        current.withLock { current in
            defer { current = evaluations }
            return current
        }
    }

    /// - Returns: whether there is a user.
    func setAttributes(_ attributes: [String: UserAttributeValue]) -> Bool {
        state.withLock { state in
            state.user?.attributes = attributes
            return state.user != nil
        }
    }

    private func cached(_ userID: String) -> Evaluations.Content? {
        guard var content = cache.content(of: userID) else { return nil }
        // Without the entity tag the server sends all evaluations again, although they have not changed.
        if content.format != Evaluations.Content.currentFormat { content.entityTag = nil }
        return content
    }

    /// Copies the current flags to another user, also on disk for a restart without the server.
    private func kept(for userID: String) -> Evaluations.Content? {
        guard let evaluations, evaluations.isFetched else { return nil }
        var content = evaluations.content
        content.userID = userID
        content.entityTag = nil
        cache.keep(content)
        return content
    }

    /// Updates the current user's evaluations after a change on which they depend.
    func update(after change: () -> Void) {
        let changed = changing.withLock { _ -> Set<String> in
            change()
            guard let user else { return [] }
            let former = evaluations
            let new = snapshot(former?.isFetched == true ? former?.content : nil, of: user.id, after: former)
            return Evaluations.changes(from: show(new), to: new)
        }
        notify(changed)
    }

    // MARK: Fetching

    private struct Request: Encodable {
        var userID: String
        var anonymousID: String?
        var attributes: [String: UserAttributeValue]
        var sdkKey: String?
        var tags: [String]?
        var includeReasons: Bool?

        private enum CodingKeys: String, CodingKey {
            case userID = "user_id"
            case anonymousID = "anonymous_id"
            case attributes
            case sdkKey = "sdk_key"
            case tags
            case includeReasons = "include_reasons"
        }
    }

    /// Fetches the current user's evaluations. If several fetches run, the latest one counts. A cancelled fetch has no
    /// effect.
    ///
    /// - Returns: the error, if it failed.
    func fetch() async -> HoldfastError? {
        let number = state.withLock { state in
            state.fetches += 1
            return state.fetches
        }
        await core.sendNamedVariations()
        let (user, anonymousID, known) = state.withLock { ($0.user, $0.anonymousID, evaluations) }
        guard let user else { return .notInitialized }
        let start = core.clock.now
        do throws(HoldfastError) {
            let changed = try await fetch(user, anonymousID, known, number)
            guard !Task.isCancelled, attempted(nil, for: user, since: start, number) else { return .cancelled }
            if anonymousID != nil { endJoining(user.id) }
            reportCounts()
            notify(changed)
            fetchListeners.notify(nil)
            return nil
        } catch {
            guard !Task.isCancelled, attempted(error, for: user, since: start, number) else { return .cancelled }
            fetchListeners.notify(error)
            return error
        }
    }

    /// Stops sending the anonymous user's id once the server has merged the two users.
    private func endJoining(_ userID: String) {
        let waiting = core.anonymousID(joining: userID)
        state.withLock { state in
            if state.user?.id.hasSameBytes(as: userID) == true { state.anonymousID = waiting }
        }
    }

    /// Queues the counts of evaluations since the last call.
    func reportCounts() {
        guard core.configuration.reportsEvaluationCounts, !core.isDestroyed else { return }
        var counts = counts.takeUnreported()[...]
        while !counts.isEmpty {
            let event = EvaluationCountsEvent(
                id: UUID(), sdkKey: core.configuration.sdkKey, counts: Array(counts.prefix(Self.countsOfReport)))
            core.enqueue(.evaluationCounts(event))
            counts = counts.dropFirst(Self.countsOfReport)
        }
    }

    private func fetch(
        _ user: HoldfastUser, _ anonymousID: String?, _ known: Evaluations?, _ number: Int
    ) async throws(HoldfastError) -> Set<String> {
        let body = try HoldfastServer.encode(
            Request(
                userID: user.id, anonymousID: anonymousID, attributes: attributes(of: user),
                sdkKey: core.configuration.sdkKey,
                tags: core.configuration.tags.isEmpty ? nil : core.configuration.tags,
                includeReasons: core.configuration.includesReasons ? true : nil))
        var fields: [String: String] = [:]
        fields["If-None-Match"] = known?.content.entityTag
        let response = try await core.server.send("POST", "v1/evaluations", body: body, fields: fields)
        // A 404 for an unknown path is excluded, because it means that the endpoint is wrong.
        if response.status == 404, let problem = Problem(response), !problem.isOfUnknownPath {
            throw .unknownProject(detail: problem.text ?? "no details")
        }
        try HoldfastServer.check(response)
        guard response.status != 304 else { return [] }
        var content = try HoldfastServer.decode(Evaluations.Content.self, response.body)
        content.entityTag = response.fields["etag"]
        content.format = Evaluations.Content.currentFormat
        // The user or the attributes may have changed meanwhile; the fetch for those is already on its way.
        let isReplaced = Task.isCancelled
        let changed = changing.withLock { _ -> Set<String>? in
            let fetched = snapshot(content, of: user.id, after: known)
            let changed = state.withLock { state -> Set<String>? in
                guard !isReplaced, state.lastEnded < number, state.user?.id.hasSameBytes(as: user.id) == true else {
                    return nil
                }
                return Evaluations.changes(from: show(fetched), to: fetched)
            }
            if changed != nil, !core.isDestroyed { cache.keep(content) }
            return changed
        }
        guard let changed else { return [] }
        if let known, known.isFetched, known.content.revision != content.revision { revisionListeners.notify(()) }
        return changed
    }

    private func attributes(of user: HoldfastUser) -> [String: UserAttributeValue] {
        guard let version = core.configuration.appVersion else { return user.attributes }
        return user.attributes.merging(["app_version": .string(version)]) { own, _ in own }
    }

    /// - Returns: whether no later fetch has ended before.
    private func attempted(
        _ failure: HoldfastError?, for user: HoldfastUser, since start: Date, _ number: Int
    ) -> Bool {
        let isLatest = state.withLock { state in
            guard state.lastEnded < number else { return false }
            state.lastEnded = number
            if state.user?.id.hasSameBytes(as: user.id) == true { state.failure = failure }
            state.lastAttempt = core.clock.now
            state.delay = state.schedule.next(
                succeeded: failure == nil, interval: interval(state), attemptedAt: start, now: core.clock.now)
            return true
        }
        guard isLatest else { return false }
        if let failure {
            // Requests of a destroyed client always fail, so this is not a warning.
            let level = failure == .destroyed ? HoldfastLogLevel.debug : .warning
            core.log(level, "flags could not be fetched", ["error": failure.localizedDescription])
        } else {
            core.log(.debug, "flags fetched")
        }
        scheduleChanged.ring()
        return true
    }

    // MARK: Polling

    /// Polls until the task is cancelled.
    func poll(_ fetch: @Sendable () async -> HoldfastError?) async {
        while !Task.isCancelled {
            // Earlier rings can be discarded, because the state is read now.
            scheduleChanged.reset()
            let rest = state.withLock { state in
                state.user == nil
                    ? .seconds(86_400)
                    : Rest(start: state.lastAttempt, duration: state.delay).left(at: core.clock.now)
            }
            if rest > .zero {
                await scheduleChanged.wait(atMost: rest, core.clock)
            } else {
                _ = await fetch()
            }
        }
    }

    private func interval(_ state: borrowing State) -> Duration {
        state.isInBackground ? core.configuration.backgroundPollingInterval : core.configuration.pollingInterval
    }

    /// Switches the polling interval, counted from the last poll; an overdue poll follows at once. A failed poll is still
    /// repeated after a minute.
    func setBackground(_ isInBackground: Bool) -> Bool {
        let hasChanged = state.withLock { state in
            guard state.isInBackground != isInBackground else { return false }
            state.isInBackground = isInBackground
            state.schedule = PollSchedule()
            state.delay = state.failure == nil ? interval(state) : PollSchedule.retryInterval
            return true
        }
        if hasChanged { scheduleChanged.ring() }
        return hasChanged
    }
}
