public import Dispatch
internal import JSON
internal import Synchronization

/// Begins traces, and sends the spans that have ended to a collector, in batches and on a queue of its own. While the
/// collector is unavailable, up to ``limit`` spans wait; further ones are dropped.
public final class Tracer: Sendable {
    /// The result of sending a batch.
    public enum Delivery: Sendable {
        /// - Parameter rejected: the number of spans that the collector did not take.
        case taken(rejected: Int)
        /// The collector will never accept the batch.
        case refused(String)
        /// Sending failed, but the same batch may succeed later.
        case failed(String)
    }

    public struct Counts: Sendable {
        public var sent: UInt64 = 0
        public var dropped: UInt64 = 0

        public init() {}
    }

    private struct State {
        var waiting: [EndedSpan] = []
        var counts = Counts()
        var isFailing = false
    }

    private let sample: Double
    private let resource: [(StaticString, String)]
    private let send: @Sendable ([UInt8], _ seconds: Int) -> Delivery
    private let report: @Sendable (String?) -> Void
    private let state = Mutex(State())
    private let queue = DispatchQueue(label: "traces", qos: .utility)
    /// Safe: Dispatch allows any thread to use a timer.
    nonisolated(unsafe) private let timer: any DispatchSourceTimer

    /// The maximum number of spans that wait, and of spans in one request.
    package static let (limit, batch) = (4_096, 512)
    private static let interval = DispatchTimeInterval.seconds(1)
    /// How long a request may take, in seconds: while the server runs, and at its stop.
    private static let (patience, lastPatience) = (5, 2)

    /// - Parameters:
    ///   - sample: the share of the traces beginning here that is recorded, from 0 to 1.
    ///   - resource: the attributes of the program, such as `service.name`.
    ///   - send: sends the JSON of an `ExportTraceServiceRequest`.
    ///   - report: called with the reason when batches begin to fail, and with `nil` when one is accepted again.
    public init(
        sample: Double, resource: [(StaticString, String)],
        send: @escaping @Sendable ([UInt8], _ seconds: Int) -> Delivery,
        report: @escaping @Sendable (String?) -> Void = { _ in }
    ) {
        self.sample = sample
        self.resource = resource
        self.send = send
        self.report = report
        timer = DispatchSource.makeTimerSource(queue: queue)
        timer.setEventHandler { [weak self] in self?.flush(seconds: Self.patience) }
        timer.schedule(deadline: .now() + Self.interval, repeating: Self.interval)
        timer.resume()
    }

    public var counts: Counts { state.withLock(\.counts) }

    // MARK: Beginning

    /// Begins the span of a request.
    ///
    /// - Parameters:
    ///   - traceparent: the field of the request. If it is absent or invalid, a new trace begins.
    ///   - isQuiet: whether a new trace is never recorded, as for the health checks of an orchestrator. The span is
    ///     still recorded if the caller records its trace.
    public func begin(traceparent: String?, state: String?, isQuiet: Bool) -> Span {
        if let parent = traceparent.flatMap(TraceContext.init(traceparent:)) {
            let own = TraceContext(trace: parent.trace, spanID: Self.newID(), isSampled: parent.isSampled)
            return Span(own, parentID: parent.spanID, state: state, .server, self)
        }
        let trace = (high: Self.newID(), low: Self.newID())
        // Decides by the trace's id, like OpenTelemetry's sampler, so that all programs with the same share record the
        // same traces.
        let isSampled = !isQuiet && Double(trace.low >> 1) < sample * 0x1p63
        return Span(
            TraceContext(trace: trace, spanID: Self.newID(), isSampled: isSampled), parentID: nil, state: nil, .server,
            self)
    }

    /// Returns a random id. 0 is excluded because it means that there is none.
    static func newID() -> UInt64 { .random(in: 1...UInt64.max) }

    // MARK: Sending

    func record(_ span: EndedSpan) {
        let count = state.withLock { state in
            guard state.waiting.count < Self.limit else {
                state.counts.dropped &+= 1
                return 0
            }
            state.waiting.append(span)
            return state.isFailing ? 0 : state.waiting.count
        }
        if count == Self.batch { queue.async { [weak self] in self?.flush(seconds: Self.patience) } }
    }

    /// Sends the waiting spans, until a batch fails. On the queue only.
    private func flush(seconds: Int) {
        while true {
            let batch = state.withLock { $0.waiting.prefix(Self.batch) }
            guard !batch.isEmpty else { return }
            let delivery = send(OTLP.encode(batch, of: resource), seconds)
            let (reason, isChange) = state.withLock { state -> (String?, Bool) in
                let wasFailing = state.isFailing
                switch delivery {
                case .taken(let rejected):
                    state.waiting.removeFirst(batch.count)
                    let dropped = min(max(0, rejected), batch.count)
                    state.counts.sent &+= UInt64(batch.count - dropped)
                    state.counts.dropped &+= UInt64(dropped)
                    state.isFailing = false
                    return (nil, wasFailing)
                case .refused(let reason):
                    state.waiting.removeFirst(batch.count)
                    state.counts.dropped &+= UInt64(batch.count)
                    state.isFailing = true
                    return (reason, !wasFailing)
                case .failed(let reason):
                    state.isFailing = true
                    return (reason, !wasFailing)
                }
            }
            if isChange { report(reason) }
            if reason != nil { return }
        }
    }

    /// Sends the waiting spans a last time. Blocks until they are sent or a batch has failed.
    ///
    /// - Returns: the number of spans that are lost.
    public func close() -> Int {
        timer.cancel()
        queue.sync { flush(seconds: Self.lastPatience) }
        return state.withLock { state in
            defer { state.waiting.removeAll() }
            return state.waiting.count
        }
    }
}

/// OpenTelemetry's protocol in its JSON form, in which ids are hexadecimal and 64-bit numbers are strings.
enum OTLP {
    static func encode(_ spans: ArraySlice<EndedSpan>, of resource: [(StaticString, String)]) -> [UInt8] {
        var writer = JSONWriter(capacity: 512 * spans.count)
        writer.beginObject()
        writer.key("resourceSpans")
        writer.beginArray()
        writer.beginObject()
        writer.key("resource")
        writer.beginObject()
        append(resource.map { ($0, .text($1)) }, to: &writer)
        writer.endObject()
        writer.key("scopeSpans")
        writer.beginArray()
        writer.beginObject()
        writer.key("scope")
        writer.beginObject()
        writer.member("name", "holdfast")
        writer.endObject()
        writer.key("spans")
        writer.beginArray()
        for span in spans { append(span, to: &writer) }
        writer.endArray()
        writer.endObject()
        writer.endArray()
        writer.endObject()
        writer.endArray()
        writer.endObject()
        return writer.finish()
    }

    private static func append(_ span: EndedSpan, to writer: inout JSONWriter) {
        writer.beginObject()
        appendIDs(span.context, to: &writer)
        if let parent = span.parentID { writer.member("parentSpanId", TraceContext.text(parent)) }
        writer.member("name", span.name)
        writer.member("kind", span.kind.rawValue)
        writer.member("startTimeUnixNano", "\(span.startedAt)")
        writer.member("endTimeUnixNano", "\(span.endedAt)")
        append(span.attributes + (span.error.map { [("error.type", .text($0))] } ?? []), to: &writer)
        if !span.links.isEmpty {
            writer.key("links")
            writer.beginArray()
            for link in span.links {
                writer.beginObject()
                appendIDs(link, to: &writer)
                writer.endObject()
            }
            writer.endArray()
        }
        if span.error != nil {
            writer.key("status")
            writer.beginObject()
            // STATUS_CODE_ERROR
            writer.member("code", 2)
            writer.endObject()
        }
        writer.endObject()
    }

    private static func appendIDs(_ context: TraceContext, to writer: inout JSONWriter) {
        writer.member("traceId", context.traceID)
        writer.member("spanId", TraceContext.text(context.spanID))
    }

    private static func append(_ attributes: Span.Attributes, to writer: inout JSONWriter) {
        writer.key("attributes")
        writer.beginArray()
        for attribute in attributes {
            writer.beginObject()
            writer.member("key", "\(attribute.name)")
            writer.key("value")
            writer.beginObject()
            switch attribute.value {
            case .text(let text): writer.member("stringValue", text)
            case .number(let number): writer.member("intValue", "\(number)")
            }
            writer.endObject()
            writer.endObject()
        }
        writer.endArray()
    }
}
