extension HTTPServer {
    /// Where a server listens, how many event loops it has, and its ``Limits``.
    public struct Configuration: Sendable {
        /// The address to listen on, as `HOST:PORT`; with port 0 the kernel chooses one.
        public var address = "127.0.0.1:8080"
        /// Number of event loops; by default one per core that the process may use.
        public var eventLoops = HTTPServer.availableCores
        /// The accept backlog of each event loop's listening socket.
        public var backlog: Int32 = 1024
        /// Whether another process may listen on the same address (`SO_REUSEPORT`).
        public var sharesAddress = false
        public var limits = Limits()

        public init() {}
    }
}

/// The limits that protect the server from its peers. The number in parentheses is the status of the response to a
/// request that exceeds the limit.
public struct Limits: Sendable {
    /// Bytes of the request line and the header fields together (414, 431).
    public var headerBytes = 16 * 1024
    /// Header fields per request (431).
    public var headerFields = 100
    /// Bytes of a body that is buffered (413); streamed bodies are not limited.
    public var bodyBytes = 1024 * 1024
    /// Bytes of incomplete bodies over all connections (503); each event loop has an equal share.
    public var unfinishedBodyBytes = 64 * 1024 * 1024
    /// Pipelined requests per connection that may wait for their responses; further requests stay unread.
    public var pipelinedRequests = 64
    /// Bytes of unsent responses per connection; beyond it, the connection's next requests stay unread. A single
    /// response may be larger.
    public var bufferedOutputBytes = 256 * 1024
    /// Open connections over all event loops (503 and close).
    public var connections = 10_000
    /// Seconds from the first byte of a header to its end (408).
    public var headerSeconds: Double = 10
    /// Seconds for a buffered body, and between two pieces of a streamed one (408).
    public var bodySeconds: Double = 30
    /// Idle timeout: seconds that a connection may stay open without a request.
    public var idleSeconds: Double = 75
    /// Write timeout: seconds that a client may stall while receiving a response.
    public var writeSeconds: Double = 30
    /// Seconds that a handler may take to respond; after that the connection is closed.
    public var responseSeconds: Double = 60
    /// Seconds that one loop iteration may take. After a longer iteration the loop is overloaded: the requests that
    /// arrived during it are refused (503).
    public var loopDelaySeconds: Double = 2

    public init() {}
}

extension Double {
    /// This number of seconds in nanoseconds, clamped to 0 to 10⁹ seconds.
    var nanoseconds: UInt64 {
        UInt64(max(0, min(self, 1e9)) * 1e9)
    }
}
