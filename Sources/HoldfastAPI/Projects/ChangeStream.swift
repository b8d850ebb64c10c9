import Bucketing
import HTTPServer
import JSON
internal import Synchronization

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
