/// Puts answers, which may come in any order, into the order of their requests (RFC 9112 §9.3.2).
struct AnswerQueue {
    private var waiting: [PendingRequest] = []
    /// The number of the first request that waits.
    private var first: UInt64 = 0
    /// What is being sent as the answer to the first request.
    private var streaming: Streaming?
    /// Whether the last answer has been written that this connection will carry.
    private(set) var isClosing = false
    /// Bytes of what is kept of the requests that wait, and of their responses that are here already.
    private(set) var heldBytes = 0
    /// The streamed response that has not been written, or not been sent, to its end.
    private(set) var unsentStream: (id: RequestID, route: Int?)?

    private struct Streaming {
        let source: any ResponseStream
        /// Sent with the first piece, so that a stream which fails before it has one can be answered by an error.
        var unsentHead: Response?
        var status = Status.ok
        var framing = ResponseEncoder.Framing.length
        var isAsked = false
        var sentBytes = 0
    }

    var isEmpty: Bool { waiting.isEmpty }
    var count: Int { waiting.count }
    /// When the first request that waits began; 0 when none waits.
    var oldestStart: UInt64 { waiting.first?.startedAt ?? 0 }
    var oldestID: RequestID? { waiting.first?.id }
    var isStreaming: Bool { streaming != nil }

    mutating func append(_ request: PendingRequest) -> UInt64 {
        heldBytes += request.heldBytes
        waiting.append(request)
        return first &+ UInt64(waiting.count - 1)
    }

    mutating func note(caller: String, of sequence: UInt64) {
        guard sequence >= first, sequence - first < UInt64(waiting.count) else { return }
        waiting[Int(sequence - first)].caller = caller
    }

    /// An answer to a request that has one already is dropped.
    mutating func answer(
        _ response: Response, sequence: UInt64, date: [UInt8], into output: inout OutputQueue,
        completed: (PendingRequest, Status) -> Void
    ) {
        guard sequence >= first, sequence - first < UInt64(waiting.count), !isClosing else { return }
        if sequence > first || streaming != nil {
            let index = Int(sequence - first)
            guard waiting[index].response == nil, index > 0 else { return }
            waiting[index].response = response
            heldBytes += response.heldBytes
            return
        }
        write(response, date, &output, completed)
        writeReady(date, &output, completed)
    }

    private mutating func write(
        _ response: Response, _ date: [UInt8], _ output: inout OutputQueue,
        _ completed: (PendingRequest, Status) -> Void
    ) {
        if case .stream(let source) = response.body, ResponseEncoder.sendsBody(of: response, to: waiting[0]) {
            streaming = Streaming(source: source, unsentHead: response)
            unsentStream = (waiting[0].id, waiting[0].route)
            return
        }
        let former = output.count
        let (status, _) = ResponseEncoder.encode(response, to: waiting[0], date: date, into: &output)
        finishFirst(status, bytes: output.count - former, completed)
    }

    private mutating func finishFirst(_ status: Status, bytes: Int, _ completed: (PendingRequest, Status) -> Void) {
        var request = waiting.removeFirst()
        request.sentBytes = bytes
        heldBytes -= request.heldBytes
        first &+= 1
        isClosing = isClosing || !request.keepsAlive
        completed(request, status)
    }

    private mutating func writeReady(
        _ date: [UInt8], _ output: inout OutputQueue, _ completed: (PendingRequest, Status) -> Void
    ) {
        while !isClosing, streaming == nil, let response = waiting.first?.response {
            write(response, date, &output, completed)
        }
    }

    // MARK: Streams

    /// The stream that is to be asked for more; it is not given again until it has answered.
    mutating func streamToPull() -> (stream: any ResponseStream, sequence: UInt64)? {
        guard let streaming, !streaming.isAsked else { return nil }
        self.streaming?.isAsked = true
        return (streaming.source, first)
    }

    mutating func streamWrote(_ bytes: [UInt8], sequence: UInt64, date: [UInt8], into output: inout OutputQueue) {
        let former = output.count
        guard let streaming = begunStream(sequence, date, &output) else { return }
        self.streaming?.isAsked = false
        ResponseEncoder.encodeChunk(bytes, framing: streaming.framing, into: &output)
        self.streaming?.sentBytes += output.count - former
    }

    mutating func streamFinished(
        sequence: UInt64, date: [UInt8], into output: inout OutputQueue, completed: (PendingRequest, Status) -> Void
    ) {
        let former = output.count
        guard let streaming = begunStream(sequence, date, &output) else { return }
        self.streaming = nil
        if streaming.framing == .chunked { output.bytes.append("0\r\n\r\n") }
        finishFirst(streaming.status, bytes: streaming.sentBytes + output.count - former, completed)
        writeReady(date, &output, completed)
    }

    /// Answers by something else than the stream, if none of that has been sent.
    ///
    /// - Returns: `false` if some has, so that the connection must be cut.
    mutating func streamFailed(
        _ response: Response, sequence: UInt64, date: [UInt8], into output: inout OutputQueue,
        completed: (PendingRequest, Status) -> Void
    ) -> Bool {
        guard let streaming, sequence == first else { return true }
        guard streaming.unsentHead != nil else { return false }
        self.streaming = nil
        write(response, date, &output, completed)
        writeReady(date, &output, completed)
        return true
    }

    /// The connection is gone: nothing is kept, and an answer that was cut off counts as given.
    mutating func abandon(completed: (PendingRequest, Status) -> Void) {
        if let streaming, streaming.unsentHead == nil {
            finishFirst(streaming.status, bytes: streaming.sentBytes, completed)
        }
        streaming = nil
        waiting = []
        heldBytes = 0
        isClosing = true
    }

    /// The stream, its head sent; `nil` when it is that of another request.
    private mutating func begunStream(
        _ sequence: UInt64, _ date: [UInt8], _ output: inout OutputQueue
    ) -> Streaming? {
        guard sequence == first else { return nil }
        if let head = streaming?.unsentHead {
            let (status, framing) = ResponseEncoder.encode(head, to: waiting[0], date: date, into: &output)
            streaming?.unsentHead = nil
            streaming?.status = status
            streaming?.framing = framing
            if framing == .close { waiting[0].keepsAlive = false }
        }
        return streaming
    }

    /// All that was written has been sent.
    mutating func writtenWasSent() {
        if streaming == nil { unsentStream = nil }
    }

    /// Whether the connection goes on after the answer to the request that came last.
    mutating func keepAliveAfterLast(_ keepsAlive: Bool) {
        if !waiting.isEmpty { waiting[waiting.count - 1].keepsAlive = keepsAlive }
    }
}

/// What must be known of a request when its answer is written.
struct PendingRequest {
    var id: RequestID
    var method: Method
    var isVersion11: Bool
    var keepsAlive: Bool
    var ifNoneMatch: String?
    /// The index in the route table; `nil` when none matched.
    var route: Int?
    /// Monotonic nanoseconds at which the request was whole, or its head if its body is taken in pieces.
    var startedAt: UInt64
    /// The target, kept only when there is an access log.
    var target: String?
    /// The answer, when it is here before those of earlier requests.
    var response: Response?
    /// The values of `X-Forwarded-For`, kept only when there is an access log.
    var forwardedFor: String?
    /// Who makes the request, as the application has noted it for the access log.
    var caller: String?
    /// Bytes of the whole response, when it has been written.
    var sentBytes = 0

    var isHead: Bool { method == .head }

    /// Bytes whose number the peer decides.
    var heldBytes: Int {
        (ifNoneMatch?.utf8.count ?? 0) + (target?.utf8.count ?? 0) + (forwardedFor?.utf8.count ?? 0)
            + (response?.heldBytes ?? 0)
    }
}

extension PendingRequest {
    /// One that is not handled, of which nothing is known.
    init(refused id: RequestID, at time: UInt64) {
        self.init(
            id: id, method: .get, isVersion11: true, keepsAlive: false, ifNoneMatch: nil, route: nil, startedAt: time,
            target: nil, response: nil)
    }
}
