import Bucketing
import Dispatch
import HTTPServer
import HoldfastCore
import JSON
internal import Synchronization

/// `GET /v1/changes`: server-sent events that tell which datafile is in force, at once and whenever it changes.
struct ChangesEndpoint {
    let feed: ChangeFeed
    let projects: ProjectView

    /// `?sdk_key=` names one project; without it all are told of.
    func get(_ request: borrowing Request, _ call: Call) throws(HoldfastError) {
        let query = try request.query(knowing: ["sdk_key"])
        if let sdkKey = query["sdk_key"] { _ = try projects.project(named: sdkKey) }
        let stream = try feed.open(sdkKey: query["sdk_key"], by: call.admission)
        var response = Response(.ok, contentType: MediaType.events, body: .stream(stream))
        // Neither a cache nor a proxy is to keep events back.
        response.fields = [("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")]
        call.respond(response)
    }
}

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
    func open(sdkKey: String?, by admission: Admission) throws(HoldfastError) -> ChangeStream {
        let opened = state.withLock { state -> Result<ChangeStream, HoldfastError> in
            guard !state.isClosed else { return .failure(HoldfastError(.unavailable, "the server is shutting down")) }
            guard state.statistics.open < limit else {
                state.statistics.refused &+= 1
                return .failure(HoldfastError(.unavailable, "at most \(limit) change streams may be open; try again later"))
            }
            let stream = ChangeStream(
                id: state.nextID, sdkKey: sdkKey, admission: admission, catalog: catalog, feed: self)
            state.streams[state.nextID] = StreamReference(stream: stream)
            state.nextID &+= 1
            state.statistics.open += 1
            return .success(stream)
        }
        do throws(HoldfastError) {
            return try opened.get()
        } catch {
            var error = error
            error.retryAfter = 5
            throw error
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

/// One client's server-sent events (WHATWG HTML §9.2). What a client that reads slowly has missed is not kept for it:
/// when there is room again it is told what is in force then.
final class ChangeStream: ResponseStream, Sendable {
    private struct State {
        /// Waits for something to tell; `nil` while the connection has no room for more.
        var writer: StreamWriter?
        /// The version of each project's datafile that the client knows, by SDK key.
        var told: [String: Int64] = [:]
        var isDue = false
        var hasBegun = false
        var hasEnded = false
    }

    private let id: UInt64
    private let sdkKey: String?
    private let admission: Admission
    private let catalog: ProjectCatalog
    private let feed: ChangeFeed
    private let state = Mutex(State())

    init(id: UInt64, sdkKey: String?, admission: Admission, catalog: ProjectCatalog, feed: ChangeFeed) {
        self.id = id
        self.sdkKey = sdkKey
        self.admission = admission
        self.catalog = catalog
        self.feed = feed
    }

    deinit {
        feed.streamEnded(id)
    }

    func produce(_ writer: StreamWriter) {
        state.withLock { state in
            state.writer = writer
            // What kept the writer away has shown the client that the stream is alive.
            state.isDue = false
        }
        goOn()
    }

    /// Tells what the client does not know, as soon as there is room.
    func goOn() {
        let projects = catalog.snapshot().projects
        let step = state.withLock { state -> (writer: StreamWriter, text: [UInt8]?, events: Int)? in
            guard let writer = state.writer else { return nil }
            if state.hasEnded || !admission.isValid {
                state.writer = nil
                return (writer, nil, 0)
            }
            var (text, events) = Self.news(projects, sdkKey, &state.told)
            if events == 0, state.isDue { text = Array(": nothing new\n\n".utf8) }
            // A client waits for the head, even if there is nothing to tell it yet.
            guard !text.isEmpty || !state.hasBegun else { return nil }
            state.hasBegun = true
            state.isDue = false
            state.writer = nil
            return (writer, text, events)
        }
        guard let step else { return }
        guard let text = step.text else { return step.writer.finish() }
        if step.events > 0 { feed.wrote(events: step.events) }
        step.writer.write(text)
    }

    /// Shows that the stream is alive, unless something else does.
    func beat() {
        state.withLock { $0.isDue = true }
        goOn()
    }

    func end() {
        state.withLock { $0.hasEnded = true }
        goOn()
    }

    private static func news(
        _ projects: [String: Project], _ sdkKey: String?, _ told: inout [String: Int64]
    ) -> (text: [UInt8], events: Int) {
        var text: [UInt8] = []
        var events = 0
        for project in projects.values where sdkKey == nil || project.sdkKey == sdkKey {
            guard told.updateValue(project.version, forKey: project.sdkKey) != project.version else { continue }
            events += 1
            text += Array("event: datafile\ndata: ".utf8)
            var writer = JSONWriter(appendingTo: text)
            writer.beginObject()
            writer.member("sdk_key", project.sdkKey)
            writer.member("revision", project.datafile.revision)
            writer.endObject()
            writer.endLine()
            writer.endLine()
            text = writer.finish()
        }
        return (text, events)
    }
}
