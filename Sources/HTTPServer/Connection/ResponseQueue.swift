/// The responses of one connection, in the order of their requests (RFC 9112 §9.3.2), and the bytes to send.
///
/// Handlers may respond in any order. ``add(_:to:)`` keeps a response with its request; ``writeNext(date:)`` moves it
/// to the output when all earlier ones are complete.
struct ResponseQueue: ~Copyable {
    /// Bytes that the socket has not taken yet.
    var output = OutputQueue()
    /// Requests without a complete response, oldest first. An array: it holds at most `Limits.pipelinedRequests`
    /// elements and usually one, so removing the first is cheap.
    private var waiting: [PendingRequest] = []
    /// The sequence number of the first waiting request. Numbers count the requests of the connection.
    private var first: UInt64 = 0
    /// The streamed response to the first waiting request.
    private var streaming: Streaming?
    /// Whether the last response of this connection has been written.
    private(set) var isClosing = false
    /// Bytes held by waiting requests and their responses.
    private(set) var heldBytes = 0
    /// The streamed response that the socket has not taken completely, for the operator's log.
    private(set) var unsentStream: (id: RequestID, route: Int?)?

    /// A response that is produced while it is sent.
    ///
    /// A class, because Swift 6.3 leaks an optional struct in a noncopyable one that is bound by `if let` and then
    /// replaced.
    private final class Streaming {
        let source: any ResponseStream
        let compressor: Gzip?
        /// Written with the first piece, so that a stream that fails before it can still become an error response.
        var unsentHead: Response?
        var status = Status.ok
        var framing = ResponseEncoder.Framing.length
        /// Whether the source was asked for its next piece and has not delivered it yet.
        var isPulled = false
        /// Whether the last piece is in the output.
        var isFinished = false
        var sentBytes = 0

        init(_ source: any ResponseStream, _ compressor: Gzip?, head: Response) {
            self.source = source
            self.compressor = compressor
            unsentHead = head
        }
    }

    var isEmpty: Bool { waiting.isEmpty }
    var count: Int { waiting.count }
    /// The start of the oldest waiting request in monotonic nanoseconds; 0 if none waits.
    var oldestStart: UInt64 { waiting.isEmpty ? 0 : waiting[0].startedAt }
    var oldestID: RequestID? { waiting.first?.id }
    var isStreaming: Bool { streaming != nil }

    /// Appends a request.
    ///
    /// - Returns: its sequence number, which later calls refer to.
    mutating func append(_ request: consuming PendingRequest) -> UInt64 {
        heldBytes += request.heldBytes
        waiting.append(request)
        return first &+ UInt64(waiting.count - 1)
    }

    /// Stores the caller's name for the access log.
    mutating func setCaller(_ name: String, of sequence: UInt64) {
        if let index = index(of: sequence) { waiting[index].caller = name }
    }

    /// Stores the task that ``abandon()`` cancels, unless the request has its response by then.
    mutating func setTask(_ task: Task<Void, Never>, of sequence: UInt64) {
        if let index = index(of: sequence) { waiting[index].task = task }
    }

    /// Returns the request that must get 412 instead of this response; `nil` if the response may be sent.
    @inline(__always)
    func requestFailingIfMatch(with response: borrowing Response, to sequence: UInt64) -> PendingRequest? {
        guard let index = index(of: sequence), waiting[index].ifMatch != nil else { return nil }
        return waiting[index].failsIfMatch(with: response) ? waiting[index] : nil
    }

    /// Sets whether the connection stays open after the response to the last request.
    mutating func keepAliveAfterLast(_ keepsAlive: Bool) {
        if !waiting.isEmpty { waiting[waiting.count - 1].keepsAlive = keepsAlive }
    }

    /// Keeps a response until ``writeNext(date:)`` writes it. A second response to the same request is dropped.
    @inline(__always)
    mutating func add(_ response: Response, to sequence: UInt64) {
        guard !isClosing, let index = index(of: sequence), waiting[index].response == nil else { return }
        if index == 0, isStreaming { return }
        waiting[index].response = response
        heldBytes += response.heldBytes
    }

    /// Writes the response to the first waiting request to the output, if the handler has responded.
    ///
    /// - Returns: the completed request, after which the caller must call again; `nil` if there is nothing to write.
    @inline(__always)
    mutating func writeNext(date: [UInt8]) -> RequestSummary? {
        if let streaming {
            guard streaming.isFinished else { return nil }
            self.streaming = nil
            return complete(takeFirst(), streaming.status, bytes: streaming.sentBytes)
        }
        guard !isClosing, var response = waiting.first?.response else { return nil }
        let compressor = ContentCoding.apply(to: &response, for: waiting[0])
        if case .stream(let source) = response.body, ResponseEncoder.sendsBody(of: response, to: waiting[0]) {
            // The response stays stored if it holds bytes that are compressed while they are sent, because `heldBytes`
            // counts them until its end.
            if case .stream? = waiting[0].response?.body { waiting[0].response = nil }
            streaming = Streaming(source, compressor, head: response)
            unsentStream = (waiting[0].id, waiting[0].route)
            return nil
        }
        let request = takeFirst()
        let former = output.count
        let (status, _) = ResponseEncoder.encode(response, to: request, date: date, into: &output)
        return complete(request, status, bytes: output.count - former)
    }

    /// Removes the first waiting request. If it is the only one, `removeLast` moves it, while `removeFirst` would copy
    /// it.
    private mutating func takeFirst() -> PendingRequest {
        waiting.count == 1 ? waiting.removeLast() : waiting.removeFirst()
    }

    /// Counts the first request, which was removed, as completed.
    @inline(__always)
    private mutating func complete(_ request: PendingRequest, _ status: Status, bytes: Int) -> RequestSummary {
        heldBytes -= request.heldBytes
        first &+= 1
        isClosing = isClosing || !request.keepsAlive
        return RequestSummary(request, status, bytes: bytes)
    }

    /// Returns the index of a waiting request; `nil` if its response is complete.
    private func index(of sequence: UInt64) -> Int? {
        guard sequence >= first, sequence - first < UInt64(waiting.count) else { return nil }
        return Int(sequence - first)
    }

    // MARK: Streams

    /// Returns the stream that should produce its next piece; `nil` until the previous call has been served.
    mutating func streamToPull() -> (stream: any ResponseStream, sequence: UInt64)? {
        guard let streaming, !streaming.isPulled else { return nil }
        streaming.isPulled = true
        return (streaming.source, first)
    }

    /// Continues the streamed response. Events of an abandoned stream are ignored.
    ///
    /// - Returns: `false` if the stream failed after its first piece, so the connection must be cut.
    mutating func continueStream(_ event: StreamEvent, of sequence: UInt64, date: [UInt8]) -> Bool {
        guard sequence == first, let streaming else { return true }
        let former = output.count
        switch event {
        case .write(let bytes):
            writeHead(of: streaming, date)
            streaming.isPulled = false
            write(streaming.compressor?.add(bytes, isLast: false) ?? bytes, of: streaming)
        case .finish:
            writeHead(of: streaming, date)
            if let compressor = streaming.compressor { write(compressor.add([], isLast: true), of: streaming) }
            streaming.isFinished = true
            if streaming.framing == .chunked { output.bytes.append("0\r\n\r\n") }
        case .fail(let response):
            guard streaming.unsentHead != nil else { return false }
            self.streaming = nil
            waiting[0].response = response
            heldBytes += response.heldBytes
        }
        streaming.sentBytes += output.count - former
        return true
    }

    private mutating func write(_ bytes: [UInt8], of streaming: Streaming) {
        ResponseEncoder.encodeChunk(bytes, framing: streaming.framing, into: &output)
    }

    /// Writes the head of a streamed response with its first piece.
    private mutating func writeHead(of streaming: Streaming, _ date: [UInt8]) {
        guard let head = streaming.unsentHead.take() else { return }
        let encoded = ResponseEncoder.encode(head, to: waiting[0], date: date, into: &output)
        streaming.status = encoded.status
        streaming.framing = encoded.framing
        if streaming.framing == .close { waiting[0].keepsAlive = false }
    }

    /// Notes that the socket has taken the whole output.
    mutating func outputWasSent() {
        if streaming == nil { unsentStream = nil }
    }

    /// Releases all requests and streams, because the connection is gone.
    ///
    /// - Returns: the request whose streamed response was cut off; it counts as completed.
    mutating func abandon() -> RequestSummary? {
        var cutOff: RequestSummary?
        if let streaming, streaming.unsentHead == nil {
            cutOff = complete(takeFirst(), streaming.status, bytes: streaming.sentBytes)
        }
        streaming = nil
        for request in waiting { request.task?.cancel() }
        waiting = []
        heldBytes = 0
        isClosing = true
        return cutOff
    }
}
