public import Tracing

/// The program that a server runs: its routes, and the methods that the server calls before and after their handlers.
///
/// Each event loop has its own instance and uses it only on the loop's thread, so an application needs no locks.
///
/// ```
/// each loop iteration   beginBatch → jobs and handlers → endBatch
/// each response         fields, markers → (written) → requestCompleted
/// ```
public protocol Application: AnyObject {
    /// The routes of the application. Read once, when the event loop starts.
    var router: Router { get }

    /// Whether the summaries for ``requestCompleted(_:)`` have the members that only an access log needs: target,
    /// `X-Forwarded-For` and caller.
    var logsRequests: Bool { get }

    /// Begins a span for each request; `nil` if nothing is traced.
    var tracer: Tracer? { get }

    /// Called before the jobs and handlers of one loop iteration. All requests of the iteration have been received by
    /// then.
    func beginBatch()
    /// Called after the handlers of one loop iteration, before their responses are sent.
    func endBatch()

    /// Returns the response to a request that no handler gets: malformed, too large, too slow, not matched by a
    /// route, or refused under overload.
    ///
    /// - Parameter location: which path the request is for, so that each path can have its own error format.
    func response(to failure: RequestFailure, at location: RequestFailure.Location) -> Response

    /// Whether the server calls ``fields(origin:route:)``.
    var readsOrigin: Bool { get }

    /// Returns header fields that the server adds to every response to a request, also to errors. Meant for CORS.
    ///
    /// - Parameters:
    ///   - origin: the `Origin` of the request, the site whose page sends it; `nil` if the request has no such field,
    ///     or if parsing failed or stopped before the field.
    ///   - route: the index of the matched route; `nil` if no route matched, or the head is incomplete or invalid.
    func fields(origin: String?, route: Int?) -> [(name: StaticString, value: String)]

    /// The name of a request header field, in lower case. The server adds ``markers()`` to the response to each request
    /// that has this field; `nil` if it adds them to none.
    var markedRequestField: StaticString? { get }

    /// Returns header fields that the server adds to every response to a request with ``markedRequestField``, also to
    /// errors.
    func markers() -> [(name: StaticString, value: String)]

    /// Called after each response was written to the connection's output.
    func requestCompleted(_ summary: RequestSummary)

    /// Called last, when the event loop ends.
    func stop()

    /// Reports an event to the operator.
    func report(_ event: ServerEvent)
}

extension Application {
    public var tracer: Tracer? { nil }

    public var readsOrigin: Bool { false }

    public func fields(origin: String?, route: Int?) -> [(name: StaticString, value: String)] { [] }

    public var markedRequestField: StaticString? { nil }

    public func markers() -> [(name: StaticString, value: String)] { [] }

    public func stop() {}
}

/// Why a request was refused before any handler got it.
public struct RequestFailure: Error, Sendable, Equatable {
    public let status: Status
    /// The requirement and the fault, for the author of the client.
    public let detail: String

    package init(_ status: Status, _ detail: String) {
        self.status = status
        self.detail = detail
    }

    /// Which path a refused request is for.
    public enum Location: Sendable, Equatable {
        /// A path of the route table, as the index of a route. For 405 that route has the path, but another method.
        case route(Int)
        /// A path that no route has, percent-encoded.
        case path(String)
        /// Unknown: the bytes are not a request.
        case none
    }

    package static func bodyTooLarge(limit: Int) -> RequestFailure {
        RequestFailure(.contentTooLarge, "the body must be at most \(limit) bytes long")
    }
}

/// A completed request.
public struct RequestSummary: Sendable {
    /// The index in the route table; `nil` if no route matched.
    public let route: Int?
    public let method: Method
    public let status: Status
    /// From the complete request to the complete response, in nanoseconds.
    public internal(set) var nanoseconds: UInt64 = 0
    public let id: RequestID
    /// Size of the response in bytes, with its head.
    public let bytes: Int
    /// The address that the request came from: the client's, or a proxy's.
    public internal(set) var peer = IPAddress.unspecified
    /// Path and query; `nil` unless ``Application/logsRequests``.
    public let target: String?
    /// The values of `X-Forwarded-For`; `nil` unless ``Application/logsRequests``.
    public let forwardedFor: String?
    /// The name that ``Responder/setCaller(_:)`` has set.
    public let caller: String?
    /// The span of the request, which the application must end; `nil` if nothing is traced.
    public let span: Span?
    /// The start of ``nanoseconds`` on the monotonic clock.
    let startedAt: UInt64

    @inline(__always)
    init(_ request: borrowing PendingRequest, _ status: Status, bytes: Int) {
        route = request.route
        method = request.method
        self.status = status
        id = request.id
        self.bytes = bytes
        target = request.target
        forwardedFor = request.forwardedFor
        caller = request.caller
        span = request.span
        startedAt = request.startedAt
    }
}

/// An event that a server reports to its operator.
public enum ServerEvent: Sendable {
    /// Accepting a connection failed, for example because no descriptors are left; accepting pauses briefly.
    case acceptFailed(SystemError)
    /// A connection was refused because the limit is reached.
    case connectionRefused
    /// A handler has not responded in time; its connection was closed.
    case handlerTimedOut(RequestID)
    /// The server stopped before a streamed response was sent completely.
    ///
    /// - Parameter route: the index in the route table.
    case streamCutOff(RequestID, route: Int?)
    /// The server stopped before this number of other connections got their responses.
    case connectionsCutOff(Int)
}

/// Metrics of one event loop since its start.
public struct ConnectionMetrics: Sendable {
    /// Connections that are open now.
    public var open = 0
    /// Connections that the loop has begun to serve.
    public var accepted: UInt64 = 0
    /// Connections refused because of ``Limits/connections``.
    public var refused: UInt64 = 0
    /// Connections that exceeded one of the times in ``Limits``.
    public var timedOut: UInt64 = 0
    /// Requests refused with 503: the event loop lagged behind, or unfinished bodies took too much memory.
    public var overloaded: UInt64 = 0
    /// Bytes that the sockets have delivered.
    public var bytesReceived: UInt64 = 0
    /// Bytes that the sockets have taken.
    public var bytesSent: UInt64 = 0

    public init() {}
}
