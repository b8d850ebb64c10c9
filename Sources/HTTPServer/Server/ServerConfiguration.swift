extension HTTPServer {
    public struct Configuration: Sendable {
        /// `HOST:PORT`; port 0 lets the kernel choose.
        public var address = "127.0.0.1:8080"
        /// Event loops; by default one for each core that the process may use.
        public var eventLoops = HTTPServer.availableCores
        /// Connections that the kernel keeps waiting for each loop.
        public var backlog: Int32 = 1024
        /// Whether another process may listen on the same address at the same time.
        public var sharesAddress = false
        public var limits = Limits()

        public init() {}
    }
}

/// What one peer may ask of the server. Each is a configuration field; none has another default elsewhere.
public struct Limits: Sendable {
    /// Bytes of request line and header fields together (414, 431).
    public var headerBytes = 16 * 1024
    /// Header fields of one request (431).
    public var headerFields = 100
    /// Bytes of a body that is handled as a whole (413); a streamed body is not limited.
    public var bodyBytes = 1024 * 1024
    /// Of bodies that have come in part, of all connections together; each event loop has an equal share.
    public var unfinishedBodyBytes = 64 * 1024 * 1024
    /// Requests of one connection that may wait for their answers at once; more stay unread.
    public var pipelinedRequests = 64
    /// Bytes of responses of one connection that may wait, for a slow reader or for the response to an earlier request,
    /// before its next requests are left unread. A single response may be longer.
    public var bufferedOutputBytes = 256 * 1024
    /// Connections open at once, over all event loops (503 and close).
    public var connections = 10_000
    /// Seconds from the first byte of a header to its end (408).
    public var headerSeconds: Double = 10
    /// Seconds for a body that is handled as a whole (408), and between two pieces of a streamed one.
    public var bodySeconds: Double = 30
    /// Seconds that a connection may be without a request.
    public var idleSeconds: Double = 75
    /// Seconds for which a peer may take nothing of an answer.
    public var writeSeconds: Double = 30
    /// Seconds that a handler has for its answer; a connection whose handler fails to answer is closed.
    public var answerSeconds: Double = 60
    /// Seconds that an event loop may take for all that has arrived; beyond it what came meanwhile is refused (503).
    public var turnSeconds: Double = 2

    public init() {}
}

extension Double {
    var nanoseconds: UInt64 {
        UInt64(max(0, min(self, 1e9)) * 1e9)
    }
}
