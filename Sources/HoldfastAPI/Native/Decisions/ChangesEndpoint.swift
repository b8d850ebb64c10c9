import Bucketing
import Chronology
import Definitions
import HTTPServer
import HoldfastCore
import JSON
internal import Synchronization

/// `GET /v1/changes`: server-sent events that name the active datafile of a project, at once and after each change. A
/// client then fetches the datafile, or evaluates again.
struct ChangesEndpoint {
    let feed: ChangeFeed
    let projects: ProjectView

    /// Opens a stream for the project that `?sdk_key=` or the header names; without a name, for all projects that the
    /// caller may use.
    func get(_ request: borrowing Request, _ call: Call) throws(CoreError) -> Response {
        let sdkKey = try request.query(knowing: ["sdk_key"])["sdk_key"] ?? request.sdkKey
        if let sdkKey { _ = try projects.project(named: sdkKey, for: call.access) }
        return Response(
            changes: try feed.open(sdkKey: sdkKey, for: call.access) { ChangeStream($0, .datafile, call.admission) })
    }
}

extension Response {
    /// Creates a response with a stream of changes.
    init(changes stream: ChangeStream) {
        self.init(.ok, contentType: MediaType.events, body: .stream(stream))
        // Prevents caches and proxies from delaying events.
        fields = [("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")]
    }
}

/// One client's server-sent events (WHATWG HTML §9.2), about changes of datafiles and, in one format, other
/// notifications.
///
/// Changes are not queued for a slow client: when its connection has room again, it receives the datafiles that are
/// active then. The connection asks for data on its event loop (``produce(_:)``), and ``HoldfastCore/ChangeFeed``
/// reports changes from any thread (``receive(_:)``), so the state is locked.
final class ChangeStream: ResponseStream, ChangeFollower {
    /// The format of an event.
    enum Format {
        /// The events of the native API.
        case datafile
        /// The events of OFREP: an event id that the client sends when it reconnects, and a version that it sends when
        /// it evaluates again.
        case refetchEvaluation
        /// The events of GrowthBook Proxy. They have no data: after an event the SDK evaluates again.
        case featuresUpdated
        /// The events of Optimizely Agent, whose streams also have other kinds of notifications.
        case agent(AgentNotifications.Format)
    }

    /// The state of the stream, which the event loop and the reporters of changes share.
    private struct State {
        /// The writer of an idle connection; `nil` while the connection has no room.
        var writer: StreamWriter?
        var isHeartbeatDue = false
        /// Events other than changes for which the connection had no room.
        var waiting: [UInt8] = []
        /// Whether the head of the response has been sent.
        var hasBegun = false
        /// Whether the feed of changes has ended the stream.
        var hasEnded = false
    }

    private let subscription: ChangeSubscription
    private let format: Format
    private let admission: Admission
    private let state = Mutex(State())
    /// The maximum size of the events that wait, in bytes.
    private static let longestQueue = 1 << 20

    /// - Parameter admission: the stream ends when it becomes invalid.
    init(_ subscription: ChangeSubscription, _ format: Format, _ admission: Admission) {
        self.subscription = subscription
        self.format = format
        self.admission = admission
    }

    func produce(_ writer: StreamWriter) {
        state.withLock { state in
            state.writer = writer
            // The data that was just sent replaces the heartbeat.
            state.isHeartbeatDue = false
        }
        sendChanges()
    }

    func receive(_ notice: ChangeFeed.Notice) {
        state.withLock { state in
            switch notice {
            case .change: break
            case .heartbeat: state.isHeartbeatDue = true
            case .end: state.hasEnded = true
            }
        }
        sendChanges()
    }

    /// Sends an event other than a change. It is dropped if too many events wait for a slow client.
    func add(_ event: [UInt8]) {
        state.withLock { state in
            if state.waiting.count + event.count <= Self.longestQueue { state.waiting += event }
        }
        sendChanges()
    }

    /// The next write to the connection; without a text, the stream ends.
    private struct Step {
        let writer: StreamWriter
        let text: [UInt8]?
    }

    /// Sends the changes that the client has not received, if the connection has room. Without a change, sends a
    /// comment if a heartbeat is due. Ends the stream if it was closed, or if its token was revoked.
    private func sendChanges() {
        let step = state.withLock { state -> Step? in
            guard let writer = state.writer else { return nil }
            if state.hasEnded || !admission.isValid {
                state.writer = nil
                return Step(writer: writer, text: nil)
            }
            var text = state.waiting
            state.waiting = []
            for project in subscription.takeChanges() { text = format.event(project, appendingTo: text) }
            if text.isEmpty, state.isHeartbeatDue, format.hasComments { text = Array(": nothing new\n\n".utf8) }
            // The first write, even an empty one, sends the head of the response, for which the client waits.
            guard !text.isEmpty || !state.hasBegun else { return nil }
            state.hasBegun = true
            state.isHeartbeatDue = false
            state.writer = nil
            return Step(writer: writer, text: text)
        }
        guard let step else { return }
        if let text = step.text { step.writer.write(text) } else { step.writer.finish() }
    }
}

extension ChangeStream.Format {
    /// Whether the format has comments, which keep the connection alive and which clients ignore.
    fileprivate var hasComments: Bool {
        if case .agent(let format) = self { !format.isRaw } else { true }
    }

    /// Returns a text with the event for a changed project at its end.
    fileprivate func event(_ project: Project, appendingTo text: [UInt8]) -> [UInt8] {
        if case .agent(let format) = self { return text + format.event(project) }
        let head =
            switch self {
            case .datafile: "event: datafile\ndata: "
            case .refetchEvaluation: "id: \(project.version)\nevent: message\ndata: "
            case .featuresUpdated: "id: \(project.version)\nevent: features-updated\ndata: "
            case .agent: ""
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
            writer.member("lastModified", project.storedAt.secondsSince1970)
        case .featuresUpdated, .agent: break
        }
        writer.endObject()
        writer.endLine()
        writer.endLine()
        return writer.finish()
    }
}
