import Bucketing
import Dispatch
import HTTPServer
import HoldfastCore
import JSON
internal import Synchronization

/// `GET /v1/changes`: server-sent events that name the active datafile, at once and after each change.
struct ChangesEndpoint {
    let feed: ChangeFeed
    let projects: ProjectView

    /// Opens a stream for the project that `?sdk_key=` or the header names, or for all projects.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) {
        let sdkKey = try request.query(knowing: ["sdk_key"])["sdk_key"] ?? request.sdkKey
        if let sdkKey { _ = try projects.project(named: sdkKey) }
        call.respond(changes: try feed.open(sdkKey: sdkKey, by: call.admission))
    }
}

extension Call {
    /// Responds with a stream of changes.
    func respond(changes stream: ChangeStream) {
        var response = Response(.ok, contentType: MediaType.events, body: .stream(stream))
        // Caches and proxies must not hold events back.
        response.fields = [("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")]
        respond(response)
    }
}

/// The open streams of changes of all protocols on all event loops. Notifies each of a changed datafile, and makes each
/// send heartbeats.
public final class ChangeFeed: Sendable {
    struct Statistics {
        /// Streams that are open.
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

    /// A weak reference: the connection owns its stream.
    private struct StreamReference: Sendable {
        weak let stream: ChangeStream?
    }

    private let catalog: ProjectCatalog
    private let limit: Int
    private let state = Mutex(State())
    private let queue = DispatchQueue(label: "change-feed")

    /// - Parameters:
    ///   - limit: the maximum number of open streams.
    ///   - heartbeat: seconds between the heartbeats of an idle stream.
    init(_ catalog: ProjectCatalog, access: AccessControl, limit: Int, heartbeat seconds: Double) {
        self.catalog = catalog
        self.limit = limit
        catalog.observe { [weak self] in self?.forEach { $0.sendChanges() } }
        access.observe { [weak self] in self?.forEach { $0.sendChanges() } }
        scheduleHeartbeats(every: seconds)
    }

    /// Makes all streams send heartbeats for as long as the feed exists.
    private func scheduleHeartbeats(every seconds: Double) {
        queue.asyncAfter(deadline: .now() + seconds) { [weak self] in
            guard let self else { return }
            forEach { $0.sendHeartbeat() }
            scheduleHeartbeats(every: seconds)
        }
    }

    /// Opens a stream, which begins with the active datafiles.
    ///
    /// - Parameters:
    ///   - sdkKey: the project that the client follows; `nil` for all.
    ///   - admission: the stream ends when it becomes invalid.
    ///   - knownVersion: the version of the project's datafile that the client knows, if any.
    /// - Throws: 503 if too many streams are open or the server is shutting down.
    func open(
        sdkKey: String?, by admission: Admission, format: ChangeStream.Format = .datafile, knownVersion: Int64? = nil
    ) throws(CoreError) -> ChangeStream {
        let opened = state.withLock { state -> Result<ChangeStream, CoreError> in
            guard !state.isClosed else { return .failure(CoreError(.unavailable, "the server is shutting down")) }
            guard state.statistics.open < limit else {
                state.statistics.refused &+= 1
                return .failure(CoreError(.unavailable, "at most \(limit) change streams may be open; try again later"))
            }
            let stream = ChangeStream(
                id: state.nextID, sdkKey: sdkKey, format, knownVersion: knownVersion, admission: admission,
                catalog: catalog, feed: self)
            state.streams[state.nextID] = StreamReference(stream: stream)
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
        // Outside the lock, because a stream that ends takes it.
        let streams = state.withLock { Array($0.streams.values) }
        EventLoop.coalescingWakeUps {
            for reference in streams {
                if let stream = reference.stream { body(stream) }
            }
        }
    }
}

/// One client's server-sent events (WHATWG HTML §9.2). Changes are not queued for a slow client: when its connection
/// has room again, it receives the datafiles that are active then.
final class ChangeStream: ResponseStream, Sendable {
    /// The format of an event.
    enum Format {
        /// As the native API does.
        case datafile
        /// As OFREP does: an event id that the client sends when it reconnects, and a version that it sends when it
        /// evaluates again.
        case refetchEvaluation
    }

    private struct State {
        /// Waits for something to send; `nil` while the connection has no room.
        var writer: StreamWriter?
        /// The version of each project's datafile that was sent last, by SDK key.
        var sentVersions: [String: Int64] = [:]
        var isHeartbeatDue = false
        var hasBegun = false
        var hasEnded = false
    }

    private let id: UInt64
    private let sdkKey: String?
    private let format: Format
    private let admission: Admission
    private let catalog: ProjectCatalog
    private let feed: ChangeFeed
    private let state: Mutex<State>

    init(
        id: UInt64, sdkKey: String?, _ format: Format, knownVersion: Int64?, admission: Admission,
        catalog: ProjectCatalog, feed: ChangeFeed
    ) {
        self.id = id
        self.sdkKey = sdkKey
        self.format = format
        var state = State()
        if let sdkKey, let knownVersion { state.sentVersions[sdkKey] = knownVersion }
        self.state = Mutex(state)
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
            // The data that was just sent has served as the heartbeat.
            state.isHeartbeatDue = false
        }
        sendChanges()
    }

    /// Sends the datafiles that the client does not know yet, if the connection has room, and ends a stream that was
    /// closed or whose token was revoked.
    func sendChanges() {
        let projects = catalog.snapshot().projects
        let step = state.withLock { state -> (writer: StreamWriter, text: [UInt8]?, events: Int)? in
            guard let writer = state.writer else { return nil }
            if state.hasEnded || !admission.isValid {
                state.writer = nil
                return (writer, nil, 0)
            }
            var (text, events) = changes(projects, &state.sentVersions)
            if events == 0, state.isHeartbeatDue { text = Array(": nothing new\n\n".utf8) }
            // The first write, even an empty one, sends the head of the response, for which the client waits.
            guard !text.isEmpty || !state.hasBegun else { return nil }
            state.hasBegun = true
            state.isHeartbeatDue = false
            state.writer = nil
            return (writer, text, events)
        }
        guard let step else { return }
        guard let text = step.text else { return step.writer.finish() }
        if step.events > 0 { feed.wrote(events: step.events) }
        step.writer.write(text)
    }

    /// Sends a comment as a heartbeat, unless a change is sent.
    func sendHeartbeat() {
        state.withLock { $0.isHeartbeatDue = true }
        sendChanges()
    }

    func end() {
        state.withLock { $0.hasEnded = true }
        sendChanges()
    }

    private func changes(
        _ projects: [String: Project], _ sentVersions: inout [String: Int64]
    ) -> (text: [UInt8], events: Int) {
        var text: [UInt8] = []
        var events = 0
        for project in projects.values where sdkKey == nil || project.sdkKey == sdkKey {
            guard sentVersions.updateValue(project.version, forKey: project.sdkKey) != project.version else { continue }
            events += 1
            text = format.event(project, appendingTo: text)
        }
        return (text, events)
    }
}

extension ChangeStream.Format {
    fileprivate func event(_ project: Project, appendingTo text: [UInt8]) -> [UInt8] {
        let head =
            switch self {
            case .datafile: "event: datafile\ndata: "
            case .refetchEvaluation: "id: \(project.version)\nevent: message\ndata: "
            }
        var writer = JSONWriter(appendingTo: text + Array(head.utf8))
        writer.beginObject()
        switch self {
        case .datafile:
            writer.member("sdk_key", project.sdkKey)
            writer.member("revision", project.datafile.revision)
        case .refetchEvaluation:
            writer.member("type", "refetchEvaluation")
            writer.member("etag", "\(project.version)")
            writer.member("lastModified", project.storedAt / 1_000)
        }
        writer.endObject()
        writer.endLine()
        writer.endLine()
        return writer.finish()
    }
}
