public import Definitions
import Dispatch
internal import Synchronization

/// The open streams on which clients of all protocols learn of changed datafiles (server-sent events).
///
/// ``open(sdkKey:for:knownVersion:_:)`` creates a stream, a ``ChangeFollower``. The feed notifies all streams of each
/// change and of each heartbeat that is due. A notified stream asks its ``ChangeSubscription`` which projects it has to
/// send. A stream that is released is closed: the feed holds it weakly, and its subscription reports the end.
public final class ChangeFeed: Sendable {
    /// The numbers of streams and events, for the server's metrics.
    public struct Statistics: Sendable {
        /// The number of open streams.
        public var open = 0
        /// The number of changed datafiles that streams took over to send, see ``ChangeSubscription/takeChanges()``.
        public var events: UInt64 = 0
        /// The number of streams that were refused because there were too many.
        public var refused: UInt64 = 0
    }

    /// Why a stream is notified.
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

    /// A weak reference to a stream, which its connection owns.
    private struct Follower: Sendable {
        weak let stream: (any ChangeFollower)?
    }

    private let catalog: ProjectCatalog
    /// The maximum number of open streams.
    private let limit: Int
    /// Calls its argument, and wakes up each event loop only once for it; see ``init(_:limit:heartbeat:together:)``.
    private let coalescingWakeUps: @Sendable (() -> Void) -> Void
    private let state = Mutex(State())
    /// Runs the heartbeats.
    private let queue = DispatchQueue(label: "change-feed")
    /// After how many seconds a refused client may try again.
    private static let retryDelay = 5

    /// - Parameters:
    ///   - limit: the maximum number of open streams.
    ///   - seconds: the time between the heartbeats of an idle stream.
    ///   - coalescingWakeUps: calls its argument, which notifies all streams, and wakes up each event loop only once
    ///     for it. The feed cannot do that itself, because it does not know the event loops of the server.
    public init(
        _ catalog: ProjectCatalog, limit: Int, heartbeat seconds: Double,
        together coalescingWakeUps: @escaping @Sendable (() -> Void) -> Void
    ) {
        self.catalog = catalog
        self.limit = limit
        self.coalescingWakeUps = coalescingWakeUps
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

    /// Opens a stream. It begins with the active datafiles that the client does not know.
    ///
    /// - Parameters:
    ///   - sdkKey: the project that the client follows; `nil` for all projects that the client may use.
    ///   - knownVersion: the version of the project's datafile that the client has; `nil` if the client has none.
    ///   - makeStream: creates the stream with its subscription. It runs under the lock of the feed, so it must not
    ///     call the feed.
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
            error.retryAfter = Self.retryDelay
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

    /// Forgets a stream that was released.
    fileprivate func streamEnded(_ id: UInt64) {
        state.withLock { state in
            guard state.streams.removeValue(forKey: id) != nil else { return }
            state.statistics.open -= 1
        }
    }

    fileprivate func countEvents(_ events: Int) {
        state.withLock { $0.statistics.events &+= UInt64(events) }
    }

    /// Notifies all open streams.
    public func notify(_ notice: Notice) {
        // The streams are notified outside of the lock, because a stream that ends calls `streamEnded`, which locks,
        // too.
        let followers = state.withLock { Array($0.streams.values) }
        coalescingWakeUps {
            for follower in followers { follower.stream?.receive(notice) }
        }
    }
}

/// A stream of changes to one client.
public protocol ChangeFollower: AnyObject, Sendable {
    /// Receives a notice of the feed, on any thread. Several changes may lead to one event, see
    /// ``ChangeSubscription/takeChanges()``.
    func receive(_ notice: ChangeFeed.Notice)
}

/// The subscription of one client to a ``ChangeFeed``: the projects that the client follows, and the version of each
/// that was sent last. Its stream owns it. The feed counts the stream as open until the subscription is released.
public final class ChangeSubscription: Sendable {
    private let id: UInt64
    /// The project that the client follows; `nil` for all projects that ``access`` allows.
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

    /// Returns the projects whose active datafile the client does not know, and marks them as sent. If a datafile
    /// changed several times since the last call, only the newest version is returned.
    public func takeChanges() -> [Project] {
        let followed = catalog.snapshot().projects.values.filter { follows($0) }
        let changed = sentVersions.withLock { versions in
            followed.filter { project in
                let sentVersion = versions.updateValue(project.version, forKey: project.sdkKey)
                return sentVersion != project.version
            }
        }
        if !changed.isEmpty { feed.countEvents(changed.count) }
        return changed
    }

    private func follows(_ project: Project) -> Bool {
        guard let sdkKey else { return access.allows(project.sdkKey) }
        return sdkKey == project.sdkKey
    }
}
