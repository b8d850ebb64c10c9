import Foundation

/// Fetches of evaluations (`POST /v1/evaluations`).
extension FlagSource {
    /// The server's limit of counts in a report.
    private static let countsPerReport = 1_000

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

    /// One fetch, with the state at its begin.
    private struct Fetch {
        /// The number of the fetch; see ``State/startedFetches``.
        var number: Int
        var startedAt: Date
        var user: HoldfastUser
        var anonymousID: String?
        /// The evaluations before the fetch.
        var former: Evaluations?
    }

    /// Fetches the current user's evaluations. If several fetches run, the latest one counts. A cancelled fetch has no
    /// effect.
    ///
    /// - Returns: the error, if the fetch failed.
    func fetch() async -> HoldfastError? {
        let number = state.withLock { state in
            state.startedFetches += 1
            return state.startedFetches
        }
        await core.sendNamedVariations()
        let (user, anonymousID, former) = state.withLock { ($0.user, $0.anonymousID, evaluations) }
        guard let user else { return .notInitialized }
        let fetch = Fetch(
            number: number, startedAt: core.clock.now, user: user, anonymousID: anonymousID, former: former)
        do throws(HoldfastError) {
            let changed = try await load(fetch)
            guard !Task.isCancelled, finish(fetch, nil) else { return .cancelled }
            if anonymousID != nil { endJoining(user.id) }
            reportCounts()
            notify(changed)
            fetchListeners.notify(nil)
            return nil
        } catch {
            guard !Task.isCancelled, finish(fetch, error) else { return .cancelled }
            fetchListeners.notify(error)
            return error
        }
    }

    // MARK: Request and response

    /// Requests the evaluations, and shows them unless the user has changed meanwhile.
    ///
    /// - Returns: the keys of changed flags.
    private func load(_ fetch: Fetch) async throws(HoldfastError) -> Set<String> {
        guard let content = try await request(fetch) else { return [] }
        guard let changed = show(content, of: fetch) else { return [] }
        if let former = fetch.former, former.isFetched, former.content.revision != content.revision {
            revisionListeners.notify(())
        }
        return changed
    }

    /// Requests the evaluations.
    ///
    /// - Returns: `nil` if the evaluations have not changed.
    private func request(_ fetch: Fetch) async throws(HoldfastError) -> Evaluations.Content? {
        let configuration = core.configuration
        let body = try HoldfastServer.encode(
            Request(
                userID: fetch.user.id, anonymousID: fetch.anonymousID, attributes: attributes(of: fetch.user),
                sdkKey: configuration.sdkKey, tags: configuration.tags.isEmpty ? nil : configuration.tags,
                includeReasons: configuration.includesReasons ? true : nil))
        var fields: [String: String] = [:]
        fields["If-None-Match"] = fetch.former?.content.entityTag
        let response = try await core.server.send("POST", "v1/evaluations", body: body, fields: fields)
        // A 404 for an unknown path is excluded, because it means that the endpoint is wrong.
        if response.status == 404, let problem = Problem(response), !problem.isOfUnknownPath {
            throw .unknownProject(detail: problem.text ?? "no details")
        }
        try HoldfastServer.check(response)
        guard response.status != 304 else { return nil }
        var content = try HoldfastServer.decode(Evaluations.Content.self, response.body)
        content.entityTag = response.fields["etag"]
        content.format = Evaluations.Content.currentFormat
        return content
    }

    /// The attributes to send: the user's, and the version of the app unless the user has one.
    private func attributes(of user: HoldfastUser) -> [String: UserAttributeValue] {
        guard let version = core.configuration.appVersion else { return user.attributes }
        return user.attributes.merging(["app_version": .string(version)]) { own, _ in own }
    }

    /// Shows a response and keeps it on disk, unless a later fetch has ended or the user has changed meanwhile: the
    /// fetch for the new user is already on its way.
    ///
    /// - Returns: the keys of changed flags; `nil` if the response is not shown.
    private func show(_ content: Evaluations.Content, of fetch: Fetch) -> Set<String>? {
        // A fetch is also cancelled when the user's attributes have changed.
        let isReplaced = Task.isCancelled
        return changing.withLock { _ -> Set<String>? in
            let fetched = snapshot(content, of: fetch.user.id, after: fetch.former)
            let changed = state.withLock { state -> Set<String>? in
                let isSameUser = state.user?.id.hasSameBytes(as: fetch.user.id) == true
                guard !isReplaced, state.lastEndedFetch < fetch.number, isSameUser else { return nil }
                return Evaluations.changes(from: exchange(fetched), to: fetched)
            }
            if changed != nil, !core.isDestroyed { cache.keep(content) }
            return changed
        }
    }

    // MARK: After a fetch

    /// Notes the result of a fetch, and schedules the next poll.
    ///
    /// - Returns: `false` if a later fetch has ended before; the result then does not count.
    private func finish(_ fetch: Fetch, _ failure: HoldfastError?) -> Bool {
        let isLatest = state.withLock { state in
            guard state.lastEndedFetch < fetch.number else { return false }
            state.lastEndedFetch = fetch.number
            if state.user?.id.hasSameBytes(as: fetch.user.id) == true { state.failure = failure }
            state.lastAttempt = core.clock.now
            state.delay = state.schedule.next(
                succeeded: failure == nil, interval: interval(state), attemptedAt: fetch.startedAt,
                now: core.clock.now)
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

    /// Stops sending the anonymous user's id once the server has merged the two users.
    private func endJoining(_ userID: String) {
        let stillJoining = core.anonymousID(joining: userID)
        state.withLock { state in
            if state.user?.id.hasSameBytes(as: userID) == true { state.anonymousID = stillJoining }
        }
    }

    /// Queues the counts of evaluations since the last call.
    func reportCounts() {
        guard core.configuration.reportsEvaluationCounts, !core.isDestroyed else { return }
        var remaining = counts.takeUnreported()[...]
        while !remaining.isEmpty {
            let event = EvaluationCountsEvent(
                id: UUID(), sdkKey: core.configuration.sdkKey, counts: Array(remaining.prefix(Self.countsPerReport)))
            core.enqueue(.evaluationCounts(event))
            remaining = remaining.dropFirst(Self.countsPerReport)
        }
    }
}
