import Dispatch
import HoldfastAPI
import Logging
import Storage
import Synchronization

/// Keeps the sign-in current: reads its files again when they change, and fetches the keys of the identity provider from
/// time to time and when a token names one that is unknown. What cannot be used changes nothing.
final class IdentityWatch: Sendable {
    private struct State {
        var versions: [Int64]
        var published = IdentitySource.Published()
        var keys = IdentityKeys(readAt: systemWallClock())
        var isFetching = false
        /// When the last fetch ended.
        var fetchedAt: ContinuousClock.Instant?
        var nextFetch = ContinuousClock.now
    }

    private let source: IdentitySource
    private let logger: Logger
    private let queue = DispatchQueue(label: "identity provider")
    /// Dispatch lets any thread use it.
    nonisolated(unsafe) private let timer: any DispatchSourceTimer
    private let state: Mutex<State>
    /// As it is at the start.
    let provider: IdentityProvider

    private static let interval = DispatchTimeInterval.seconds(2)
    /// The time between two fetches, and after one that failed.
    private static let (period, pause) = (Duration.seconds(300), Duration.seconds(30))
    /// The time between fetches for unknown keys: callers decide how many tokens name one.
    private static let shortestPause = Duration.seconds(5)
    /// For each request, in seconds; at the start the server waits for it.
    private static let (firstLimit, limit) = (5, 15)

    /// - Throws: if a file cannot be used. A provider that does not respond is asked again later.
    init(_ source: IdentitySource, _ logger: Logger) throws(Failure) {
        self.source = source
        self.logger = logger
        timer = DispatchSource.makeTimerSource(queue: queue)
        var state = State(versions: source.versions)
        var provider: IdentityProvider?
        if source.isPublished {
            do throws(Failure) {
                let published = try source.fetch(seconds: Self.firstLimit)
                provider = try source.provider(published)
                Self.note(published, in: &state)
            } catch {
                Self.note(error, in: &state, source, logger)
            }
        }
        state.keys.areFetched = !source.keysAreInFile
        if let provider {
            self.provider = provider
        } else {
            self.provider = try source.provider(state.published)
        }
        self.state = Mutex(state)
    }

    /// Begins to keep the sign-in of a server current.
    func begin(_ access: AccessControl) {
        share(access)
        access.onUnknownKey { [weak self] in self?.fetchSoon(access) ?? false }
        timer.setEventHandler { [weak self] in self?.look(access) }
        timer.schedule(deadline: .now() + Self.interval, repeating: Self.interval)
        timer.resume()
    }

    func cancel() {
        timer.cancel()
    }

    /// Shows what is known to others.
    private func share(_ access: AccessControl) {
        let (keys, signIn) = state.withLock { ($0.keys, $0.published.signIn) }
        access.identityKeys = keys
        access.signIn = signIn
    }

    /// - Returns: whether the keys are being fetched.
    private func fetchSoon(_ access: AccessControl) -> Bool {
        guard !source.keysAreInFile else { return false }
        let (begins, isFetching) = state.withLock { state in
            if state.isFetching { return (false, true) }
            if let last = state.fetchedAt, last + Self.shortestPause > .now { return (false, false) }
            state.isFetching = true
            return (true, true)
        }
        if begins { queue.async { self.fetch(access) } }
        return isFetching
    }

    private func look(_ access: AccessControl) {
        let versions = source.versions
        let (isChanged, isDue) = state.withLock { state in
            defer { state.versions = versions }
            let isDue = source.isPublished && !state.isFetching && state.nextFetch <= .now
            if isDue { state.isFetching = true }
            return (state.versions != versions, isDue)
        }
        if isChanged { read(access) }
        if isDue { fetch(access) }
    }

    /// Reads the files again.
    private func read(_ access: AccessControl) {
        do throws(Failure) {
            access.replaceIdentity(try source.provider(state.withLock { $0.published }))
            if source.keysAreInFile {
                state.withLock { state in
                    state.keys.readAt = systemWallClock()
                    state.keys.failure = nil
                }
            }
            logger.notice("read the files of the identity provider again", metadata: ["keys": "\(source.name)"])
        } catch {
            if source.keysAreInFile {
                state.withLock { state in
                    state.keys.failures += 1
                    state.keys.failure = "the files of the identity provider were not read; the former stay active"
                }
            }
            logger.error(
                "the files of the identity provider were not read; the former stay active",
                metadata: ["error": "\(error)"])
        }
        share(access)
    }

    private func fetch(_ access: AccessControl) {
        do throws(Failure) {
            let published = try source.fetch(seconds: Self.limit)
            // Tokens that were verified stay so unless something has changed.
            if published != state.withLock({ $0.published }) {
                access.replaceIdentity(try source.provider(published))
                logger.notice("fetched other keys of the identity provider", metadata: ["keys": "\(source.name)"])
            }
            state.withLock { Self.note(published, in: &$0) }
        } catch {
            state.withLock { Self.note(error, in: &$0, source, logger) }
        }
        share(access)
    }

    private static func note(_ published: IdentitySource.Published, in state: inout State) {
        state.published = published
        state.keys.readAt = systemWallClock()
        state.keys.failure = nil
        (state.isFetching, state.fetchedAt, state.nextFetch) = (false, .now, .now + period)
    }

    private static func note(_ failure: Failure, in state: inout State, _ source: IdentitySource, _ logger: Logger) {
        logger.error(
            "what the identity provider publishes could not be fetched; the former stays active",
            metadata: ["error": "\(failure)"])
        state.keys.failures += 1
        let wasFetched = state.published.keys != nil || state.published.signIn != nil
        state.keys.failure =
            wasFetched
            ? "what the identity provider publishes could not be fetched since \(state.keys.readAt.rfc3339); its keys of "
                + "then stay active"
            : "what the identity provider publishes could not be fetched yet; nobody can sign in"
                + (source.keysAreInFile ? " to the console" : " with it")
        (state.isFetching, state.fetchedAt, state.nextFetch) = (false, .now, .now + pause)
    }
}
