import Foundation
import Synchronization

/// Keeps the evaluations of the current user up to date: asks at intervals, and at once when the server tells of a
/// change.
final class FlagSource: Sendable {
    private struct State {
        var user: HoldfastUser?
        /// Why the last fetch failed.
        var failure: HoldfastError?
        var isInBackground = false
        var schedule = PollSchedule()
        var lastAttempt = Date.distantPast
        var delay = Duration.zero
        var listening: Task<Void, Never>?
    }

    let core: ClientCore
    private let state = Mutex(State())
    /// Apart from the rest, as it is what every use of a flag reads.
    private let current = Mutex<Evaluations?>(nil)
    private let scheduleChanged = Signal()
    private let listeners = Listeners<Set<String>>()

    private static let cacheName = "evaluations.cache"
    /// The server is heard of every 15 s.
    private static let silence = Duration.seconds(45)

    init(core: ClientCore) {
        self.core = core
    }

    var user: HoldfastUser? { state.withLock { $0.user } }

    /// Why the last fetch for the user failed; `nil` when it did not, or none has ended.
    var failure: HoldfastError? { state.withLock { $0.failure } }

    @inline(__always)
    var evaluations: Evaluations? { current.withLock { $0 } }

    func observe(_ listener: @escaping @Sendable (Set<String>) -> Void) -> ListenerToken {
        listeners.add(listener)
    }

    // MARK: The user

    /// From now on flags are those of this user; what is cached of another is not shown, and listeners are told.
    ///
    /// - Returns: whether it is the first user.
    func begin(_ user: HoldfastUser) -> Bool {
        let isSame = self.user?.id.hasSameBytes(as: user.id) == true
        let known = isSame ? nil : cached(user.id)
        let (isFirst, changed) = state.withLock { state -> (Bool, Set<String>) in
            let former = state.user
            state.user = user
            state.failure = nil
            // The caller asks first.
            state.lastAttempt = core.clock.now
            state.delay = interval(state)
            guard !isSame else { return (false, []) }
            return (former == nil, Evaluations.changes(from: show(known), to: known))
        }
        if !changed.isEmpty { listeners.tell(changed) }
        return isFirst
    }

    /// - Returns: what was shown until now.
    private func show(_ evaluations: Evaluations?) -> Evaluations? {
        current.withLock { current in
            defer { current = evaluations }
            return current
        }
    }

    func setAttributes(_ attributes: [String: AttributeValue]) {
        state.withLock { $0.user?.attributes = attributes }
    }

    private func cached(_ userID: String) -> Evaluations? {
        guard let content = core.cache.read(Self.cacheName, as: Evaluations.Content.self),
            content.userID.hasSameBytes(as: userID)
        else { return nil }
        return Evaluations(content, after: nil, reports: core.configuration.reportsExposures)
    }

    // MARK: Asking the server

    private struct Request: Encodable {
        var userID: String
        var attributes: [String: AttributeValue]
        var sdkKey: String?

        private enum CodingKeys: String, CodingKey {
            case userID = "user_id"
            case attributes
            case sdkKey = "sdk_key"
        }
    }

    /// Asks for the evaluations of the current user. One call at a time.
    ///
    /// - Returns: why it failed.
    func fetch() async -> HoldfastError? {
        let (user, known) = state.withLock { ($0.user, evaluations) }
        guard let user else { return .notInitialized }
        do throws(HoldfastError) {
            let changed = try await fetch(user, known)
            attempted(nil)
            if !changed.isEmpty { listeners.tell(changed) }
            return nil
        } catch {
            attempted(error)
            return error
        }
    }

    private func fetch(_ user: HoldfastUser, _ known: Evaluations?) async throws(HoldfastError) -> Set<String> {
        let body = try HoldfastServer.encode(
            Request(userID: user.id, attributes: user.attributes, sdkKey: core.configuration.tag))
        var fields: [String: String] = [:]
        fields["If-None-Match"] = known?.content.entityTag
        let answer = try await core.server.request("POST", "v1/evaluations", body: body, fields: fields)
        guard answer.status != 304 else { return [] }
        var content = try HoldfastServer.decode(Evaluations.Content.self, answer.body)
        content.entityTag = answer.fields["etag"]
        let fetched = Evaluations(content, after: known, reports: core.configuration.reportsExposures)
        // The user may have been exchanged meanwhile; then a fetch for the new one is under way.
        let changed = state.withLock { state -> Set<String>? in
            guard state.user?.id.hasSameBytes(as: user.id) == true else { return nil }
            return Evaluations.changes(from: show(fetched), to: fetched)
        }
        guard let changed, !core.isDestroyed else { return [] }
        core.cache.write(Self.cacheName, content)
        return changed
    }

    private func attempted(_ failure: HoldfastError?) {
        state.withLock { state in
            state.failure = failure
            state.lastAttempt = core.clock.now
            state.delay = state.schedule.next(succeeded: failure == nil, interval: interval(state))
        }
        scheduleChanged.ring()
    }

    // MARK: Polling

    /// Asks whenever it is time, until the task is cancelled.
    func poll(_ fetch: @Sendable () async -> HoldfastError?) async {
        while !Task.isCancelled {
            let rest = state.withLock { state in
                let age = core.clock.now.timeIntervalSince(state.lastAttempt)
                // A clock that was set back makes nobody wait for longer than the interval.
                return state.user == nil ? .seconds(86_400) : min(state.delay, state.delay - .seconds(max(age, 0)))
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

    /// The next poll comes after the other interval from the last one; one that is overdue comes at once.
    func setBackground(_ isInBackground: Bool) -> Bool {
        let hasChanged = state.withLock { state in
            guard state.isInBackground != isInBackground else { return false }
            state.isInBackground = isInBackground
            state.schedule = PollSchedule()
            state.delay = interval(state)
            return true
        }
        if hasChanged { scheduleChanged.ring() }
        return hasChanged
    }

    // MARK: Listening

    func startListening(_ fetch: @escaping @Sendable () async -> HoldfastError?) {
        guard core.configuration.listensToChanges, !core.isDestroyed else { return }
        state.withLock { state in
            guard state.listening == nil, state.user != nil, !state.isInBackground else { return }
            state.listening = Task { [weak self] in await self?.listen(fetch) }
        }
    }

    func stopListening() {
        let task = state.withLock { state in
            defer { state.listening = nil }
            return state.listening
        }
        task?.cancel()
    }

    private struct Change: Decodable {
        var revision: String
    }

    /// Listens for changes until the task is cancelled; polling goes on, so that nothing is missed for good.
    private func listen(_ fetch: @Sendable () async -> HoldfastError?) async {
        var backoff = Backoff()
        let query = core.configuration.tag.map { ["sdk_key": $0] } ?? [:]
        while !Task.isCancelled {
            var retryAfter: Duration?
            do {
                let events = try await core.server.stream("v1/changes", query: query, silence: Self.silence)
                backoff.succeeded()
                var isFirst = true
                for try await event in events where event.name == "datafile" {
                    let change = try? JSONDecoder().decode(Change.self, from: Data(event.data.utf8))
                    let isKnown = change != nil && change?.revision == evaluations?.content.revision
                    // Two datafiles may have one revision: what comes later is a change in any case.
                    if !isFirst || !isKnown { _ = await fetch() }
                    isFirst = false
                }
            } catch HoldfastError.unavailable(_, let wanted) {
                retryAfter = wanted
            } catch {
                // Told by the next fetch, which asks the same server.
            }
            try? await core.clock.sleep(for: backoff.failed(retryAfter: retryAfter))
        }
    }
}
