/// Puts answers, which may come in any order, into the order of their requests (RFC 9112 §9.3.2).
struct AnswerQueue {
    private var waiting: [PendingRequest] = []
    /// The number of the first request that waits.
    private var first: UInt64 = 0
    /// The stream that is being sent as the answer to the first request.
    private var stream: (any ResponseStream)?
    private var streamFraming = ResponseEncoder.Framing.length
    private var streamIsAsked = false
    /// Whether the last answer has been written that this connection will carry.
    private(set) var isClosing = false

    var isEmpty: Bool { waiting.isEmpty }
    var count: Int { waiting.count }
    /// When the first request that waits began; 0 when none waits.
    var oldestStart: UInt64 { waiting.first?.startedAt ?? 0 }
    var oldestID: RequestID? { waiting.first?.id }
    var isStreaming: Bool { stream != nil }

    mutating func append(_ request: PendingRequest) -> UInt64 {
        waiting.append(request)
        return first &+ UInt64(waiting.count - 1)
    }

    /// An answer to a request that has one already is dropped.
    mutating func answer(
        _ response: Response, sequence: UInt64, date: [UInt8], into output: inout ByteBuffer,
        completed: (PendingRequest, Status) -> Void
    ) {
        guard sequence >= first, sequence - first < UInt64(waiting.count), !isClosing else { return }
        if sequence > first || stream != nil {
            let index = Int(sequence - first)
            if waiting[index].response == nil, index > 0 { waiting[index].response = response }
            return
        }
        write(response, date, &output, completed)
        writeReady(date, &output, completed)
    }

    private mutating func write(
        _ response: Response, _ date: [UInt8], _ output: inout ByteBuffer,
        _ completed: (PendingRequest, Status) -> Void
    ) {
        let (status, framing) = ResponseEncoder.encode(response, to: waiting[0], date: date, into: &output)
        if case .stream(let stream) = response.body, framing != .length {
            self.stream = stream
            streamFraming = framing
            streamIsAsked = false
            if framing == .close { waiting[0].keepsAlive = false }
            waiting[0].response = Response(status)
            return
        }
        finishFirst(status, completed)
    }

    private mutating func finishFirst(_ status: Status, _ completed: (PendingRequest, Status) -> Void) {
        let request = waiting.removeFirst()
        first &+= 1
        isClosing = isClosing || !request.keepsAlive
        completed(request, status)
    }

    private mutating func writeReady(
        _ date: [UInt8], _ output: inout ByteBuffer, _ completed: (PendingRequest, Status) -> Void
    ) {
        while !isClosing, stream == nil, let response = waiting.first?.response {
            write(response, date, &output, completed)
        }
    }

    // MARK: Streams

    /// The stream that is to be asked for more; it is not given again until it has answered.
    mutating func streamToPull() -> (stream: any ResponseStream, sequence: UInt64)? {
        guard let stream, !streamIsAsked else { return nil }
        streamIsAsked = true
        return (stream, first)
    }

    mutating func streamWrote(_ bytes: [UInt8], sequence: UInt64, into output: inout ByteBuffer) {
        guard stream != nil, sequence == first else { return }
        streamIsAsked = false
        ResponseEncoder.encodeChunk(bytes, framing: streamFraming, into: &output)
    }

    mutating func streamFinished(
        sequence: UInt64, date: [UInt8], into output: inout ByteBuffer, completed: (PendingRequest, Status) -> Void
    ) {
        guard stream != nil, sequence == first else { return }
        stream = nil
        if streamFraming == .chunked { output.append("0\r\n\r\n") }
        finishFirst(waiting[0].response?.status ?? .ok, completed)
        writeReady(date, &output, completed)
    }

    /// Whether the connection goes on after the answer to the request that came last.
    mutating func keepAliveAfterLast(_ keepsAlive: Bool) {
        if !waiting.isEmpty { waiting[waiting.count - 1].keepsAlive = keepsAlive }
    }
}
