import Dispatch
import HTTPServer
internal import Synchronization

/// The streams of `GET /v1/changes` that are open, over all event loops: tells each when a datafile has changed, and
/// lets each show now and then that it is alive.
public final class ChangeFeed: Sendable {
    struct Statistics {
        /// Streams open now.
        var open = 0
        /// Events written.
        var events: UInt64 = 0
        /// Streams refused because there were too many.
        var refused: UInt64 = 0
    }

    private struct State {
        var streams: [UInt64: StreamReference] = [:]
        var nextID: UInt64 = 0
        var isClosed = false
        var statistics = Statistics()
    }

    /// The connection keeps its stream; the feed only knows it.
    private struct StreamReference: Sendable {
        weak let stream: ChangeStream?
    }

    private let catalog: ProjectCatalog
    private let limit: Int
    private let state = Mutex(State())
    private let queue = DispatchQueue(label: "change-feed")

    /// - Parameters:
    ///   - limit: streams open at once.
    ///   - heartbeat: seconds after which a stream that has nothing to tell says so.
    init(_ catalog: ProjectCatalog, access: AccessControl, limit: Int, heartbeat seconds: Double) {
        self.catalog = catalog
        self.limit = limit
        catalog.observe { [weak self] in self?.forEach { $0.goOn() } }
        access.observe { [weak self] in self?.forEach { $0.goOn() } }
        beat(every: seconds)
    }

    /// Lets all streams show that they are alive, until the feed is gone.
    private func beat(every seconds: Double) {
        queue.asyncAfter(deadline: .now() + seconds) { [weak self] in
            guard let self else { return }
            forEach { $0.beat() }
            beat(every: seconds)
        }
    }

    /// A stream that begins with what is in force now.
    ///
    /// - Parameters:
    ///   - sdkKey: the one project to tell of; `nil` for all.
    ///   - admission: the stream ends when it is not valid any more.
    /// - Throws: 503 when there are too many, or the server is shutting down.
    func open(sdkKey: String?, by admission: Admission) throws(Problem) -> ChangeStream {
        let opened = state.withLock { state -> Result<ChangeStream, Problem> in
            guard !state.isClosed else { return .failure(Problem(.serviceUnavailable, "the server is shutting down")) }
            guard state.statistics.open < limit else {
                state.statistics.refused &+= 1
                return .failure(Problem(.serviceUnavailable, "at most \(limit) change streams may be open; try again later"))
            }
            let stream = ChangeStream(
                id: state.nextID, sdkKey: sdkKey, admission: admission, catalog: catalog, feed: self)
            state.streams[state.nextID] = StreamReference(stream: stream)
            state.nextID &+= 1
            state.statistics.open += 1
            return .success(stream)
        }
        do throws(Problem) {
            return try opened.get()
        } catch {
            var problem = error
            problem.mayBeTried(after: 5)
            throw problem
        }
    }

    /// Ends all streams, so that their clients look for another server; no new one is opened.
    public func close() {
        state.withLock { $0.isClosed = true }
        forEach { $0.end() }
    }

    var statistics: Statistics { state.withLock { $0.statistics } }

    func streamEnded(_ id: UInt64) {
        state.withLock { state in
            guard state.streams.removeValue(forKey: id) != nil else { return }
            state.statistics.open -= 1
        }
    }

    func wrote(events: Int) {
        state.withLock { $0.statistics.events &+= UInt64(events) }
    }

    private func forEach(_ body: (ChangeStream) -> Void) {
        // Outside the lock, which a stream that ends takes.
        let streams = state.withLock { Array($0.streams.values) }
        EventLoop.coalescingWakeUps {
            for reference in streams {
                if let stream = reference.stream { body(stream) }
            }
        }
    }
}
