public import Definitions
import Dispatch
internal import Synchronization

/// The open streams of changes of all protocols. It notifies them of changed datafiles, and makes them send heartbeats.
public final class ChangeFeed: Sendable {
    public struct Statistics: Sendable {
        /// The number of open streams.
        public var open = 0
        /// The number of events that were written.
        public var events: UInt64 = 0
        /// The number of streams that were refused because there were too many.
        public var refused: UInt64 = 0
    }

    /// Why the streams are notified.
    public enum Notice: Sendable {
        /// A datafile may have changed, or a client may no longer be admitted.
        case change
        /// An idle stream should send something.
        case heartbeat
        /// The server is shutting down.
        case end
    }

    private struct State {
        var streams: [UInt64: Follower] = [:]
        var nextID: UInt64 = 0
        var isClosed = false
        var statistics = Statistics()
    }

    /// A weak reference: the connection owns its stream.
    private struct Follower: Sendable {
        weak let stream: (any ChangeFollower)?
    }

    private let catalog: ProjectCatalog
    private let limit: Int
    private let together: @Sendable (() -> Void) -> Void
    private let state = Mutex(State())
    private let queue = DispatchQueue(label: "change-feed")

    /// - Parameters:
    ///   - limit: the maximum number of open streams.
    ///   - heartbeat: the time between the heartbeats of an idle stream, in seconds.
    ///   - together: runs a function that notifies many streams.
    public init(
        _ catalog: ProjectCatalog, limit: Int, heartbeat seconds: Double,
        together: @escaping @Sendable (() -> Void) -> Void
    ) {
        self.catalog = catalog
        self.limit = limit
        self.together = together
        catalog.observe { [weak self] in self?.notify(.change) }
        scheduleHeartbeats(every: seconds)
    }

    /// Makes all streams send heartbeats for as long as the feed exists.
    private func scheduleHeartbeats(every seconds: Double) {
        queue.asyncAfter(deadline: .now() + seconds) { [weak self] in
            guard let self else { return }
            notify(.heartbeat)
            scheduleHeartbeats(every: seconds)
        }
    }

    /// Opens a stream, which begins with the active datafiles.
    ///
    /// - Parameters:
    ///   - sdkKey: the project that the client follows; `nil` for all that it may use.
    ///   - knownVersion: the version of the project's datafile that the client knows, if any.
    ///   - makeStream: makes the stream with its subscription.
    /// - Throws: 503 if too many streams are open or the server is shutting down.
    public func open<Stream: ChangeFollower>(
        sdkKey: String?, for access: ProjectAccess, knownVersion: Int64? = nil,
        _ makeStream: (ChangeSubscription) -> Stream
    ) throws(CoreError) -> Stream {
        let opened = state.withLock { state -> Result<Stream, CoreError> in
            guard !state.isClosed else { return .failure(CoreError(.unavailable, "the server is shutting down")) }
            guard state.statistics.open < limit else {
                state.statistics.refused &+= 1
                return .failure(CoreError(.unavailable, "at most \(limit) change streams may be open; try again later"))
            }
            let stream = makeStream(
                ChangeSubscription(
                    id: state.nextID, sdkKey: sdkKey, access: access, knownVersion: knownVersion, catalog: catalog,
                    feed: self))
            state.streams[state.nextID] = Follower(stream: stream)
            state.nextID &+= 1
            state.statistics.open += 1
            return .success(stream)
        }
        do throws(CoreError) {
            return try opened.get()
        } catch {
            var error = error
            error.retryAfter = 5
            throw error
        }
    }

    /// Ends all streams, so that clients reconnect to another server, and refuses new ones.
    public func close() {
        state.withLock { $0.isClosed = true }
        notify(.end)
    }

    /// Whether the server is shutting down.
    public var isClosed: Bool { state.withLock(\.isClosed) }

    public var statistics: Statistics { state.withLock { $0.statistics } }

    fileprivate func streamEnded(_ id: UInt64) {
        state.withLock { state in
            guard state.streams.removeValue(forKey: id) != nil else { return }
            state.statistics.open -= 1
        }
    }

    fileprivate func wrote(events: Int) {
        state.withLock { $0.statistics.events &+= UInt64(events) }
    }

    public func notify(_ notice: Notice) {
        // Outside the lock, because a stream that ends takes it.
        let streams = state.withLock { Array($0.streams.values) }
        together {
            for follower in streams { follower.stream?.receive(notice) }
        }
    }
}

/// A stream of changes to one client.
public protocol ChangeFollower: AnyObject, Sendable {
    /// Called on any thread.
    func receive(_ notice: ChangeFeed.Notice)
}

/// The subscription of one client to a ``ChangeFeed``. The stream ends when it releases its subscription.
public final class ChangeSubscription: Sendable {
    private let id: UInt64
    private let sdkKey: String?
    private let access: ProjectAccess
    private let catalog: ProjectCatalog
    private let feed: ChangeFeed
    /// The version of each project's datafile that was sent last, by SDK key.
    private let sentVersions: Mutex<[String: Int64]>

    fileprivate init(
        id: UInt64, sdkKey: String?, access: ProjectAccess, knownVersion: Int64?, catalog: ProjectCatalog,
        feed: ChangeFeed
    ) {
        self.id = id
        self.access = access
        self.sdkKey = sdkKey
        self.catalog = catalog
        self.feed = feed
        var versions: [String: Int64] = [:]
        if let sdkKey, let knownVersion { versions[sdkKey] = knownVersion }
        sentVersions = Mutex(versions)
    }

    deinit {
        feed.streamEnded(id)
    }

    /// Returns the projects whose active datafile the client does not know, and marks them as sent.
    public func takeChanges() -> [Project] {
        let projects = catalog.snapshot().projects
        let changed = sentVersions.withLock { versions in
            projects.values.filter { project in
                (sdkKey.map { $0 == project.sdkKey } ?? access.allows(project.sdkKey))
                    && versions.updateValue(project.version, forKey: project.sdkKey) != project.version
            }
        }
        if !changed.isEmpty { feed.wrote(events: changed.count) }
        return changed
    }
}
