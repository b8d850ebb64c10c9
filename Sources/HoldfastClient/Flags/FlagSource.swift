import Foundation

/// The source of a client's flags: keeps the current user's evaluations up to date, and notifies listeners of changes.
///
/// | file | content |
/// | --- | --- |
/// | `FlagSource.swift` | the current user, listeners, and polling |
/// | `FlagSource+Fetching.swift` | fetches, and reports of evaluation counts |
/// | `FlagSource+Listening.swift` | fetches when the server announces a change |
/// | `FlagSource+Overrides.swift` | overrides of testers, and bootstrap values |
final class FlagSource: Sendable {
    struct State {
        var user: HoldfastUser?
        /// Id of the anonymous user who has logged in as this user, until the server has merged the two.
        var anonymousID: String?
        /// Error of the last fetch.
        var failure: HoldfastError?
        var isInBackground = false
        /// Computes ``delay`` after each fetch.
        var schedule = PollSchedule()
        /// When the last fetch ended.
        var lastAttempt = Date.distantPast
        /// The time from ``lastAttempt`` to the next poll.
        var delay = Duration.zero
        /// The task that listens to the server's changes; `nil` while the client does not listen.
        var listening: Task<Void, Never>?
        /// The number of fetches that have started. Fetches are numbered from 1.
        var startedFetches = 0
        /// The number of the latest fetch that has ended. If an earlier fetch ends after it, its result is discarded.
        var lastEndedFetch = 0
    }

    let core: ClientCore
    let state = Locked(State())
    /// The current evaluations. They have their own lock, because every evaluation reads them.
    private let current = Locked<Evaluations?>(nil)
    /// Serializes changes of the user, the evaluations and their cache, so that all three always belong to one user.
    let changing = Locked(())
    /// Rung when a fetch has ended, or when the polling interval has changed.
    let scheduleChanged = Signal()
    /// Listeners of the library's own, with the keys of changed flags.
    private let listeners = Listeners<Set<String>>()
    /// Listeners of the app, with the keys of changed flags.
    private let appListeners = Listeners<Set<String>>()
    /// Listeners of fetches, with the error of the fetch; `nil` after a success.
    let fetchListeners = Listeners<HoldfastError?>()
    /// Listeners that are called when the server has another datafile.
    let revisionListeners = Listeners<Void>()
    /// Listeners that are called after another user has become the current one.
    private let userListeners = Listeners<Void>()
    /// How often each flag was evaluated with which result.
    let counts = EvaluationCounts()
    /// The evaluations of the last users, on disk.
    let cache: EvaluationCache
    /// The overrides in memory; `nil` until ``overrides`` has read them from disk.
    let loadedOverrides = Locked<[String: HoldfastValue]?>(nil)

    init(core: ClientCore) {
        self.core = core
        cache = EvaluationCache(disk: core.cache, limit: core.configuration.cachedUsers)
    }

    /// The current user; `nil` before there is one.
    var user: HoldfastUser? { state.withLock { $0.user } }

    /// Error of the user's last fetch; `nil` after a success or before the first response.
    var failure: HoldfastError? { state.withLock { $0.failure } }

    /// The current user's evaluations; `nil` if there are none.
    @inline(__always)
    var evaluations: Evaluations? { current.withLock { $0 } }

    // MARK: Listeners

    /// Adds a listener of the library's own, which ``clearAppListeners()`` keeps.
    func observe(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        listeners.add(listener)
    }

    /// Adds a listener of the app.
    func addAppListener(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        appListeners.add(listener)
    }

    /// Adds a listener of the app that is called on the main actor.
    func addMainActorAppListener(_ listener: @escaping @MainActor @Sendable (Set<String>) -> Void) -> ListenerToken {
        // When the listener is removed, a call may be on its way to the main actor. It must then have no effect.
        let isRemoved = SharedFlag(false)
        let token = appListeners.add({ keys in
            Task { @MainActor in if !isRemoved.isSet { listener(keys) } }
        }) { isRemoved.isSet = true }
        return ListenerToken {
            isRemoved.isSet = true
            token.cancel()
        }
    }

    /// Removes the listeners of the app.
    func clearAppListeners() { appListeners.removeAll() }

    /// Adds a listener that is called with the error of each fetch, `nil` after a success.
    func observeFetches(_ listener: @escaping @Sendable (HoldfastError?) -> Void) -> ListenerToken {
        fetchListeners.add(listener)
    }

    /// Adds a listener that is called when the client is destroyed. If the client is destroyed already, the listener is
    /// called at once.
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

    /// Returns a stream of the keys of changed flags, which buffers the newest 100 changes.
    func updates() -> AsyncStream<Set<String>> {
        listeners.stream(buffering: 100) { $0 }
    }

    /// Ends all streams, and releases the listeners of the app, which may own the client.
    func end() {
        listeners.end()
        appListeners.removeAll()
        fetchListeners.removeAll()
    }

    /// Notifies listeners of changed flags, if there are any.
    func notify(_ changed: Set<String>) {
        guard !changed.isEmpty else { return }
        listeners.notify(changed)
        appListeners.notify(changed)
    }

    // MARK: The user

    /// Switches to a user and notifies listeners of the flags that change.
    ///
    /// - Parameter anonymousID: the anonymous user who has logged in as this user; `nil` without a login. If that is
    ///   the current user, its flags stay until the flags of the new user are fetched.
    /// - Returns: whether it is the first user.
    func begin(_ user: HoldfastUser, after anonymousID: String? = nil) -> Bool {
        let (former, changed) = changing.withLock { _ -> (HoldfastUser?, Set<String>?) in
            let former = self.user
            let isSameUser = former?.id.hasSameBytes(as: user.id) == true
            // The current user need not be the anonymous one: another thread may have changed it since the login began.
            let isLoginOfCurrentUser = anonymousID.map { former?.id.hasSameBytes(as: $0) == true } ?? false
            var initial: Evaluations?
            if !isSameUser {
                let content = cached(user.id) ?? (isLoginOfCurrentUser ? copyCurrentFlags(to: user.id) : nil)
                initial = snapshot(content, of: user.id)
            }
            let changed = state.withLock { [initial] state -> Set<String>? in
                state.user = user
                state.anonymousID = anonymousID ?? core.anonymousID(joining: user.id)
                state.failure = nil
                // The caller makes the first fetch, so the next poll is due after the interval.
                state.lastAttempt = core.clock.now
                state.delay = interval(state)
                return isSameUser ? nil : Evaluations.changes(from: exchange(initial), to: initial)
            }
            return (former, changed)
        }
        if let changed {
            notify(changed)
            userListeners.notify(())
        }
        return former == nil
    }

    /// Makes evaluations the current ones.
    ///
    /// - Returns: the former evaluations.
    func exchange(_ evaluations: Evaluations?) -> Evaluations? {
        current.withLock { current in
            defer { current = evaluations }
            return current
        }
    }

    /// Replaces the attributes of the current user.
    ///
    /// - Returns: whether there is a user.
    func setAttributes(_ attributes: [String: UserAttributeValue]) -> Bool {
        state.withLock { state in
            state.user?.attributes = attributes
            return state.user != nil
        }
    }

    /// Returns the evaluations of a user from disk; `nil` if there are none.
    private func cached(_ userID: String) -> Evaluations.Content? {
        guard var content = cache.content(of: userID) else { return nil }
        // The cache of an earlier release may lack members. Without the entity tag the server sends all evaluations
        // again, although they have not changed.
        if content.format != Evaluations.Content.currentFormat { content.entityTag = nil }
        return content
    }

    /// Copies the current flags to another user. The copy is also kept on disk, for a restart without the server.
    private func copyCurrentFlags(to userID: String) -> Evaluations.Content? {
        guard let evaluations, evaluations.isFetched else { return nil }
        var content = evaluations.content
        content.userID = userID
        content.entityTag = nil
        cache.keep(content)
        return content
    }

    /// Makes a change on which evaluations depend, such as of overrides, and updates the current user's evaluations.
    func update(after change: () -> Void) {
        let changed = changing.withLock { _ -> Set<String> in
            change()
            guard let user else { return [] }
            let former = evaluations
            let new = snapshot(former?.isFetched == true ? former?.content : nil, of: user.id, after: former)
            return Evaluations.changes(from: exchange(new), to: new)
        }
        notify(changed)
    }

    // MARK: Polling

    /// The wait if there is no user. It is only a safeguard, because polling starts with the first user.
    private static let waitWithoutUser = Duration.seconds(86_400)

    /// Polls until the task is cancelled.
    func poll(_ fetch: @Sendable () async -> HoldfastError?) async {
        while !Task.isCancelled {
            // Earlier rings can be discarded, because the state is read now.
            scheduleChanged.reset()
            let remaining = state.withLock { state in
                guard state.user != nil else { return Self.waitWithoutUser }
                return Pause(start: state.lastAttempt, duration: state.delay).remaining(at: core.clock.now)
            }
            if remaining > .zero {
                await scheduleChanged.wait(atMost: remaining, core.clock)
            } else {
                _ = await fetch()
            }
        }
    }

    /// The regular time between two polls.
    func interval(_ state: borrowing State) -> Duration {
        state.isInBackground ? core.configuration.backgroundPollingInterval : core.configuration.pollingInterval
    }

    /// Switches the polling interval. The interval is counted from the last poll, so a poll that is overdue follows at
    /// once. A failed poll is still repeated after a minute.
    ///
    /// - Returns: whether the state has changed.
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
