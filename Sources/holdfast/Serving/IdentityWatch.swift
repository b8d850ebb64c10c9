import Chronology
import Dispatch
import HoldfastAPI
import Logging
import Storage
import Synchronization

/// Keeps the sign-in up to date. It reads the files again when they change, and fetches the keys of the identity
/// provider periodically and when a token names an unknown key. Invalid files and keys are ignored, and the previous
/// ones stay in use.
final class IdentityWatch: Sendable {
    private struct State {
        /// ``IdentitySource/versions`` of the files that were read last.
        var versions: [Int64]
        var published = IdentitySource.Published()
        /// The state of the keys, for metrics and readiness.
        var keys = IdentityKeys(readAt: systemWallClock())
        /// Whether a fetch is in progress, or will begin at once.
        var isFetching = false
        /// When the last fetch ended; `nil` before the first one.
        var fetchedAt: ContinuousClock.Instant?
        /// When the next periodic fetch is due.
        var nextFetch = ContinuousClock.now
    }

    private let source: IdentitySource
    private let logger: Logger
    private let queue = DispatchQueue(label: "identity provider")
    // Safe: Dispatch allows any thread to use a timer.
    nonisolated(unsafe) private let timer: any DispatchSourceTimer
    private let state: Mutex<State>
    /// The provider at the start of the server; later ones are passed to the access control.
    let provider: IdentityProvider

    /// The time between two checks of the files.
    private static let checkInterval = DispatchTimeInterval.seconds(2)
    /// The time from a successful fetch to the next one.
    private static let fetchInterval = Duration.seconds(300)
    /// The time from a failed fetch to the next one.
    private static let retryInterval = Duration.seconds(30)
    /// The minimum time between fetches for unknown keys, because callers may send any number of tokens with unknown
    /// keys.
    private static let unknownKeyInterval = Duration.seconds(5)
    /// The time limit of a request at the start in seconds. It is short because the server waits for the response.
    private static let firstTimeout = 5
    /// The time limit of later requests in seconds.
    private static let timeout = 15

    /// - Throws: ``Failure`` if a file is invalid. If the provider does not respond, it is asked again later.
    init(_ source: IdentitySource, _ logger: Logger) throws(Failure) {
        self.source = source
        self.logger = logger
        timer = DispatchSource.makeTimerSource(queue: queue)
        var state = State(versions: source.versions)
        var provider: IdentityProvider?
        if source.isPublished {
            do throws(Failure) {
                let published = try source.fetch(seconds: Self.firstTimeout)
                provider = try source.provider(published)
                Self.store(published, in: &state)
            } catch {
                Self.reportFailedFetch(error, in: &state, source, logger)
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

    /// Starts to keep the sign-in of a server up to date.
    func begin(_ access: AccessControl) {
        share(access)
        access.onUnknownKey { [weak self] in self?.fetchSoon(access) ?? false }
        timer.setEventHandler { [weak self] in self?.check(access) }
        timer.schedule(deadline: .now() + Self.checkInterval, repeating: Self.checkInterval)
        timer.resume()
    }

    /// Ends the checks.
    func cancel() {
        timer.cancel()
    }

    /// Passes the current provider to the access control.
    private func share(_ access: AccessControl) {
        let (keys, signIn) = state.withLock { ($0.keys, $0.published.signIn) }
        access.identityKeys = keys
        access.signIn = signIn
    }

    /// Fetches the keys because a token names an unknown one, unless they were fetched a moment ago.
    ///
    /// - Returns: whether the keys are being fetched.
    private func fetchSoon(_ access: AccessControl) -> Bool {
        guard !source.keysAreInFile else { return false }
        let (starts, isFetching) = state.withLock { state in
            if state.isFetching { return (false, true) }
            if let last = state.fetchedAt, last + Self.unknownKeyInterval > .now { return (false, false) }
            state.isFetching = true
            return (true, true)
        }
        if starts { queue.async { self.fetch(access) } }
        return isFetching
    }

    /// Reads the files if they have changed, and fetches the documents if a fetch is due. The timer calls this.
    private func check(_ access: AccessControl) {
        let versions = source.versions
        let (isChanged, isDue) = state.withLock { state in
            defer { state.versions = versions }
            let isDue = source.isPublished && !state.isFetching && state.nextFetch <= .now
            if isDue { state.isFetching = true }
            return (state.versions != versions, isDue)
        }
        if isChanged { readFiles(access) }
        if isDue { fetch(access) }
    }

    /// Reads the files again. If one is invalid, the former files stay in use.
    private func readFiles(_ access: AccessControl) {
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

    /// Fetches the published documents. After a failure the former documents stay in use.
    private func fetch(_ access: AccessControl) {
        do throws(Failure) {
            let published = try source.fetch(seconds: Self.timeout)
            // Verified tokens stay valid unless the published documents have changed.
            if published != state.withLock({ $0.published }) {
                access.replaceIdentity(try source.provider(published))
                logger.notice("fetched other keys of the identity provider", metadata: ["keys": "\(source.name)"])
            }
            state.withLock { Self.store(published, in: &$0) }
        } catch {
            state.withLock { Self.reportFailedFetch(error, in: &$0, source, logger) }
        }
        share(access)
    }

    /// Stores the result of a fetch.
    private static func store(_ published: IdentitySource.Published, in state: inout State) {
        state.published = published
        state.keys.readAt = systemWallClock()
        state.keys.failure = nil
        endFetch(in: &state, next: fetchInterval)
    }

    /// Stores and logs the failure of a fetch. The former documents stay.
    private static func reportFailedFetch(
        _ failure: Failure, in state: inout State, _ source: IdentitySource, _ logger: Logger
    ) {
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
        endFetch(in: &state, next: retryInterval)
    }

    /// Ends a fetch, and schedules the next one.
    ///
    /// - Parameter delay: the time until the next fetch.
    private static func endFetch(in state: inout State, next delay: Duration) {
        state.isFetching = false
        state.fetchedAt = .now
        state.nextFetch = .now + delay
    }
}
