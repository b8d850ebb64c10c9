import Foundation

/// Listens to the server's stream of changes (`GET /v1/changes`), and fetches the flags at each change.
extension FlagSource {
    /// The maximum time without data. The server sends a comment every 15 s.
    private static let silence = Duration.seconds(45)
    /// The duration in seconds after which a connection counts as successful, which resets the back-off.
    private static let steadySeconds = 10.0

    /// Starts to listen, if the configuration says so, there is a user, and the app is in the foreground.
    ///
    /// - Parameter fetch: fetches the flags.
    func startListening(_ fetch: @escaping @Sendable () async -> HoldfastError?) {
        guard core.configuration.listensToChanges, !core.isDestroyed else { return }
        state.withLock { state in
            guard state.listening == nil, state.user != nil, !state.isInBackground else { return }
            state.listening = Task { [weak self] in await self?.listen(fetch) }
        }
    }

    /// Closes the stream.
    func stopListening() {
        let task = state.withLock { state in
            defer { state.listening = nil }
            return state.listening
        }
        task?.cancel()
    }

    /// The data of an event: the revision of the active datafile.
    private struct Change: Decodable {
        var revision: String
    }

    /// Fetches on announced changes until the task is cancelled. Polling continues, in case an announcement is missed.
    private func listen(_ fetch: @Sendable () async -> HoldfastError?) async {
        var backoff = Backoff()
        let query = core.configuration.sdkKey.map { ["sdk_key": $0] } ?? [:]
        while !Task.isCancelled, !core.isDestroyed {
            var retryAfter: Duration?
            let start = core.clock.now
            do {
                let events = try await core.server.stream("v1/changes", query: query, silence: Self.silence)
                var isFirst = true
                for try await event in events where event.name == "datafile" {
                    let change = try? JSONDecoder().decode(Change.self, from: Data(event.data.utf8))
                    let isCurrent = change != nil && change?.revision == evaluations?.content.revision
                    // The first event tells the current revision, which the client may have already. Each later event
                    // is a change, even if the revision is the same: two datafiles may have one revision.
                    if !isFirst || !isCurrent { _ = await fetch() }
                    isFirst = false
                }
            } catch HoldfastError.unavailable(_, let delay) {
                retryAfter = delay
            } catch {
                core.log(.debug, "changes of flags cannot be listened to", ["error": error.localizedDescription])
            }
            // A short connection counts as a failure. Otherwise the client would reconnect each second to a proxy that
            // ends each response at once.
            if core.clock.now.timeIntervalSince(start) > Self.steadySeconds { backoff.succeeded() }
            try? await core.clock.sleep(for: backoff.failed(retryAfter: retryAfter))
        }
    }
}
