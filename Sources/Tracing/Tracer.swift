import Dispatch
internal import Synchronization

/// Begins the spans of requests, and exports ended spans to an OpenTelemetry collector.
///
/// ``record(_:)`` only appends a span to a list, so a request never waits for the collector. A queue of the tracer's
/// own sends the list in batches: once a second, and as soon as a batch is full. While the collector is unavailable, up
/// to ``limit`` spans wait; further ones are dropped.
public final class Tracer: Sendable {
    /// The result of sending a batch.
    public enum Delivery: Sendable {
        /// The collector accepted the batch.
        ///
        /// - Parameter rejected: the number of spans in the batch that the collector dropped.
        case taken(rejected: Int)
        /// The collector will never accept the batch.
        case refused(String)
        /// Sending failed, but the same batch may succeed later.
        case failed(String)

        /// The reason why the batch was not accepted; `nil` if it was.
        fileprivate var failure: String? {
            switch self {
            case .taken: nil
            case .refused(let reason), .failed(let reason): reason
            }
        }
    }

    /// The numbers of spans since the tracer was created.
    public struct Counts: Sendable {
        /// The spans that the collector accepted.
        public var sent: UInt64 = 0
        /// The spans that were lost: the list was full, or the collector refused them.
        public var dropped: UInt64 = 0

        public init() {}
    }

    private struct State {
        /// The spans to send, oldest first.
        var waiting: [EndedSpan] = []
        var counts = Counts()
        /// Whether the collector did not accept the last batch.
        var isFailing = false

        /// Notes the result of sending the first spans that wait. A batch that failed keeps its place in the list.
        mutating func apply(_ delivery: Delivery, ofBatch count: Int) {
            isFailing = delivery.failure != nil
            switch delivery {
            case .taken(let rejected):
                waiting.removeFirst(count)
                // The collector reports the number, so it may be wrong.
                let lost = min(max(0, rejected), count)
                counts.sent &+= UInt64(count - lost)
                counts.dropped &+= UInt64(lost)
            case .refused:
                waiting.removeFirst(count)
                counts.dropped &+= UInt64(count)
            case .failed:
                break
            }
        }
    }

    /// The maximum number of spans that wait. Bounds the memory that they take while the collector is unavailable.
    package static let limit = 4_096
    /// The maximum number of spans in one request to the collector.
    package static let batch = 512
    /// The time between two batches while fewer spans than a full batch wait.
    private static let interval = DispatchTimeInterval.seconds(1)
    /// The timeout of a request in seconds, while the server runs.
    private static let requestTimeout = 5
    /// The timeout of the last requests in seconds, while the server stops.
    private static let lastRequestTimeout = 2

    private let sample: Double
    private let resource: [(StaticString, String)]
    private let send: @Sendable ([UInt8], _ seconds: Int) -> Delivery
    private let report: @Sendable (String?) -> Void
    private let state = Mutex(State())
    private let queue = DispatchQueue(label: "traces", qos: .utility)
    /// `nonisolated(unsafe)` is safe, because Dispatch allows any thread to use a timer.
    nonisolated(unsafe) private let timer: any DispatchSourceTimer

    /// - Parameters:
    ///   - sample: the share of new traces that is recorded, from 0 to 1. A trace that a client has begun is recorded
    ///     if the client says so.
    ///   - resource: the attributes of the program, such as `service.name`.
    ///   - send: sends the JSON of an `ExportTraceServiceRequest` within a number of seconds. Called on the tracer's
    ///     queue, which it may block.
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
        timer.setEventHandler { [weak self] in self?.flush(timeout: Self.requestTimeout) }
        timer.schedule(deadline: .now() + Self.interval, repeating: Self.interval)
        timer.resume()
    }

    /// How many spans were sent, and how many were lost.
    public var counts: Counts { state.withLock(\.counts) }

    // MARK: Beginning spans

    /// Begins the span of a request.
    ///
    /// - Parameters:
    ///   - traceparent: the header field of the request. If it is absent or invalid, a new trace begins.
    ///   - state: the header field `tracestate` of the request.
    ///   - isQuiet: whether to record no new trace, as for the health checks of an orchestrator. The span is still
    ///     recorded if the client records the trace that the span belongs to.
    public func begin(traceparent: String?, state: String?, isQuiet: Bool) -> Span {
        if let parent = traceparent.flatMap(TraceContext.init(traceparent:)) {
            let own = TraceContext(trace: parent.trace, spanID: Self.newID(), isSampled: parent.isSampled)
            return Span(own, parentID: parent.spanID, state: state, .server, self)
        }
        let trace = (high: Self.newID(), low: Self.newID())
        // Decides by the trace id, like OpenTelemetry's sampler, so that all programs with the same share record the
        // same traces. The upper 63 bits of `low` are a random number below 2^63.
        let isSampled = !isQuiet && Double(trace.low >> 1) < sample * 0x1p63
        return Span(
            TraceContext(trace: trace, spanID: Self.newID(), isSampled: isSampled), parentID: nil, state: nil, .server,
            self)
    }

    /// Returns a random id. Never 0, which means "no id" in Trace Context.
    static func newID() -> UInt64 { .random(in: 1...UInt64.max) }

    // MARK: Exporting spans

    /// Queues a span for export, or drops the span if the queue is full.
    func record(_ span: EndedSpan) {
        let count = state.withLock { state in
            guard state.waiting.count < Self.limit else {
                state.counts.dropped &+= 1
                return 0
            }
            state.waiting.append(span)
            // While the collector fails, only the timer sends.
            return state.isFailing ? 0 : state.waiting.count
        }
        // `==` and not `>=`, so that only the span that completes a batch wakes the queue.
        if count == Self.batch { queue.async { [weak self] in self?.flush(timeout: Self.requestTimeout) } }
    }

    /// Sends the waiting spans, until a batch fails. On the queue only.
    private func flush(timeout seconds: Int) {
        while true {
            let batch = state.withLock { $0.waiting.prefix(Self.batch) }
            guard !batch.isEmpty else { return }
            let delivery = send(OTLP.encode(batch, of: resource), seconds)
            let wasFailing = state.withLock { state in
                defer { state.apply(delivery, ofBatch: batch.count) }
                return state.isFailing
            }
            let failure = delivery.failure
            if wasFailing != (failure != nil) { report(failure) }
            guard failure == nil else { return }
        }
    }

    /// Sends the waiting spans a last time. Blocks until they are sent or a batch has failed.
    ///
    /// - Returns: the number of spans that are lost.
    public func close() -> Int {
        timer.cancel()
        queue.sync { flush(timeout: Self.lastRequestTimeout) }
        return state.withLock { state in
            defer { state.waiting.removeAll() }
            return state.waiting.count
        }
    }
}
