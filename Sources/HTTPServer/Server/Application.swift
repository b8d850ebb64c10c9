/// What a server serves: one instance for each event loop, used on that loop's thread only, so that it needs no
/// locks.
public protocol Application: AnyObject {
    var router: Router { get }

    /// Whether ``requestWasAnswered(_:)`` is told what an access log has: target, forwarding proxies and caller.
    var logsRequests: Bool { get }

    /// Handlers of a number of requests run between these two; all bytes of these requests were received before.
    func beginBatch()
    func endBatch()

    /// The answer to a request that no handler sees: malformed, too large, too slow, or matched by no route.
    func response(to failure: RequestFailure) -> Response

    /// Called after each answer was written to the connection's output.
    func requestWasAnswered(_ summary: RequestSummary)

    /// Called last, when the event loop has served its last request and ends.
    func stop()

    /// Something happened that the operator may want to know of.
    func report(_ event: ServerEvent)
}

extension Application {
    public func stop() {}
}

/// A request that was answered.
public struct RequestSummary: Sendable {
    /// The index in the route table; `nil` when none matched.
    public let route: Int?
    public let method: Method
    public let status: Status
    public let nanoseconds: UInt64
    public let id: RequestID
    /// Of the response, its head included.
    public let bytes: Int
    /// Who has sent the request: the client, or a proxy.
    public let peer: IPAddress
    /// Path and query, when ``Application/logsRequests`` asks for them.
    public let target: String?
    /// The values of `X-Forwarded-For`, when they are asked for.
    public let forwardedFor: String?
    /// As ``Responder/note(caller:)`` was given it.
    public let caller: String?
}

/// What a server tells its operator.
public enum ServerEvent: Sendable {
    /// A connection could not be accepted (descriptors used up, …); accepting pauses for a moment.
    case acceptFailed(SystemError)
    /// A connection was refused because there were too many.
    case connectionRefused
    /// A handler has not answered in time; its connection was closed.
    case handlerTimedOut(RequestID)
    /// The server stopped before a streamed response had been sent to its end.
    ///
    /// - Parameter route: the index in the route table.
    case streamCutOff(RequestID, route: Int?)
    /// The server stopped before so many other connections had been answered.
    case connectionsCutOff(Int)
}

/// Figures of one event loop since it started.
public struct ConnectionStatistics: Sendable {
    public var open = 0
    public var accepted: UInt64 = 0
    public var refused: UInt64 = 0
    public var timedOut: UInt64 = 0
    /// Requests refused because the event loop was behind.
    public var overloaded: UInt64 = 0
    public var bytesReceived: UInt64 = 0
    public var bytesSent: UInt64 = 0

    public init() {}
}

/// Why a request was refused before any handler saw it. The connection is closed after the answer, because what
/// follows on it can no longer be told apart.
public struct RequestFailure: Error, Sendable, Equatable {
    public let status: Status
    /// What is wrong and where, for the person who wrote the client.
    public let detail: String

    init(_ status: Status, _ detail: String) {
        self.status = status
        self.detail = detail
    }
}
