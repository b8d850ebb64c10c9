import Glibc

/// One piece of work in a trace, from its creation to its ``end(_:_:error:links:)``. A span that is never ended is not
/// recorded.
public final class Span: Sendable {
    /// The span that the current code belongs to; `nil` if nothing is traced. Tasks that handlers and completions start
    /// inherit it.
    @TaskLocal public static var current: Span?

    /// The side of a request that the span describes. The raw values are those of OTLP's `SpanKind`.
    public enum Kind: Int, Sendable {
        case server = 2
        case client = 3
    }

    /// The value of an attribute.
    public enum Value: Sendable {
        case text(String)
        case number(Int)
    }

    /// What the span's work was about, such as `http.route`, named by OpenTelemetry's semantic conventions.
    public typealias Attributes = [(name: StaticString, value: Value)]

    /// The ids that identify the span, and whether it is recorded.
    public let context: TraceContext
    /// The header field `tracestate` of the request, which is passed on unchanged.
    public let state: String?
    /// The id of the span that this one is a part of; `nil` if this one began the trace.
    private let parentID: UInt64?
    private let kind: Kind
    private let tracer: Tracer
    /// The start in nanoseconds. `wall` counts from 1970, for the record. `monotonic` is for the duration, which must
    /// not change when the clock of the system is set. Both are 0 if the trace is not recorded.
    private let startedAt: (wall: UInt64, monotonic: UInt64)

    init(_ context: TraceContext, parentID: UInt64?, state: String?, _ kind: Kind, _ tracer: Tracer) {
        self.context = context
        self.parentID = parentID
        self.state = state
        self.kind = kind
        self.tracer = tracer
        startedAt = context.isSampled ? (Self.now(CLOCK_REALTIME), Self.now(CLOCK_MONOTONIC)) : (0, 0)
    }

    /// Begins a span that is a part of this one, such as a query of a request.
    public func child(_ kind: Kind) -> Span {
        let own = TraceContext(trace: context.trace, spanID: Tracer.newID(), isSampled: context.isSampled)
        return Span(own, parentID: context.spanID, state: state, kind, tracer)
    }

    /// Ends the span and hands it to the tracer. Call it once.
    ///
    /// - Parameters:
    ///   - name: one of few names, such as a route, so that collectors can group spans by name.
    ///   - attributes: what the work was about.
    ///   - error: the kind of failure; `nil` for success.
    ///   - links: other spans that the work was done for, such as the requests that share one request to another server.
    public func end(
        _ name: String, _ attributes: Attributes, error: String? = nil, links: [TraceContext] = []
    ) {
        guard context.isSampled else { return }
        let duration = Self.now(CLOCK_MONOTONIC) &- startedAt.monotonic
        tracer.record(
            EndedSpan(
                context: context, parentID: parentID, kind: kind, name: name, startedAt: startedAt.wall,
                endedAt: startedAt.wall &+ duration, attributes: attributes, error: error, links: links))
    }

    /// Runs work with a span as ``current``.
    @inline(__always)
    public static func with<Result>(_ span: Span?, _ work: () -> Result) -> Result {
        guard let span else { return work() }
        return $current.withValue(span, operation: work)
    }

    /// Returns the time of a clock in nanoseconds.
    private static func now(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        clock_gettime(clock, &time)
        return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
    }
}

/// A span that has ended and can be sent.
struct EndedSpan: Sendable {
    let context: TraceContext
    let parentID: UInt64?
    let kind: Span.Kind
    let name: String
    /// In nanoseconds since 1970.
    let startedAt: UInt64
    /// In nanoseconds since 1970.
    let endedAt: UInt64
    let attributes: Span.Attributes
    /// The kind of failure; `nil` for success.
    let error: String?
    let links: [TraceContext]
}
