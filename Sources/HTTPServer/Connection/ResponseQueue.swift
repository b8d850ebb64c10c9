import Tracing

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
    /// The sequence number of the first waiting request.
    private var first: UInt64 = 0
    /// The streamed response to the first waiting request.
    private var streaming: Streaming?
    /// Whether the last response of this connection has been written.
    private(set) var isClosing = false
    /// Bytes held by waiting requests and their responses.
    private(set) var heldBytes = 0
    /// The streamed response that was not sent completely.
    private(set) var unsentStream: (id: RequestID, route: Int?)?

    /// A class, because Swift 6.3 leaks an optional struct in a noncopyable one that is bound by `if let` and then
    /// replaced.
    private final class Streaming {
        let source: any ResponseStream
        let compressor: Gzip?
        /// Written with the first piece, so that a stream that fails before it can still become an error response.
        var unsentHead: Response?
        var status = Status.ok
        var framing = ResponseEncoder.Framing.length
        var isPulled = false
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

    /// Stores the task to be cancelled by ``abandon()``, unless it has responded.
    mutating func setTask(_ task: Task<Void, Never>, of sequence: UInt64) {
        if let index = index(of: sequence) { waiting[index].task = task }
    }

    /// Returns the request that must get 412 instead of the response; `nil` for the response itself.
    @inline(__always)
    func request(excluding response: borrowing Response, to sequence: UInt64) -> PendingRequest? {
        guard let index = index(of: sequence), waiting[index].ifMatch != nil else { return nil }
        return waiting[index].excludes(response) ? waiting[index] : nil
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

    /// Writes the response to the first waiting request, if it is there. Call again until it returns `nil`.
    ///
    /// - Returns: the request whose response is complete.
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
            // Bytes that are compressed while they are sent are held until then.
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

    /// `removeLast` moves the element; `removeFirst` copies it.
    private mutating func takeFirst() -> PendingRequest {
        waiting.count == 1 ? waiting.removeLast() : waiting.removeFirst()
    }

    @inline(__always)
    private mutating func complete(_ request: PendingRequest, _ status: Status, bytes: Int) -> RequestSummary {
        heldBytes -= request.heldBytes
        first &+= 1
        isClosing = isClosing || !request.keepsAlive
        return RequestSummary(request, status, bytes: bytes)
    }

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

    private mutating func writeHead(of streaming: Streaming, _ date: [UInt8]) {
        guard let head = streaming.unsentHead.take() else { return }
        (streaming.status, streaming.framing) = ResponseEncoder.encode(head, to: waiting[0], date: date, into: &output)
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

/// The data of a request that are kept until its response is complete.
package struct PendingRequest {
    package var id: RequestID
    var method: Method
    var isVersion11: Bool
    var keepsAlive: Bool
    /// The conditions of a safe request; the handlers of other requests check theirs.
    var ifMatch: String?
    var ifNoneMatch: String?
    /// Whether the client prefers compressed responses.
    var acceptsGzip = false
    /// The index in the route table; `nil` if no route matched.
    package var route: Int?
    /// Monotonic nanoseconds at which the request was complete, or its head if its body is streamed.
    var startedAt: UInt64
    /// The request target; kept only for an access log.
    var target: String?
    /// The response, while it waits for those to earlier requests.
    var response: Response?
    /// The values of `X-Forwarded-For`; kept only for an access log.
    var forwardedFor: String?
    /// The caller's name as the application set it; kept only for an access log.
    var caller: String?
    /// Works on the response, if that is asynchronous.
    var task: Task<Void, Never>?
    /// `nil` if nothing is traced.
    var span: Span?
    /// Header fields that the response gets in addition to its own.
    package var fields: [(name: StaticString, value: String)] = []

    var isHead: Bool { method == .head }

    /// Bytes held for this request, as far as the peer decides how many.
    var heldBytes: Int {
        (ifMatch?.utf8.count ?? 0) + (ifNoneMatch?.utf8.count ?? 0) + (target?.utf8.count ?? 0)
            + (forwardedFor?.utf8.count ?? 0) + (response?.heldBytes ?? 0)
    }

    /// Whether the response must be 412, because the representation is not one that `If-Match` lists
    /// (RFC 9110 §13.1.1). This condition precedes those that lead to 304 (§13.2.2).
    package func excludes(_ response: borrowing Response) -> Bool {
        guard let ifMatch, let tag = response.entityTag, [.ok, .notModified].contains(response.status) else {
            return false
        }
        return !tag.isListed(in: ifMatch, weakly: false)
    }
}

extension PendingRequest {
    /// - Parameters:
    ///   - bytes: what the head was parsed from.
    ///   - route: the index in the route table; `nil` if none matched.
    ///   - time: the start in monotonic nanoseconds.
    @inline(__always)
    package init(
        _ head: RequestHead, in bytes: UnsafeRawBufferPointer, id: RequestID, route: Int?, keepsAlive: Bool,
        at time: UInt64, for application: any Application
    ) {
        self.init(
            id: id, method: head.method, isVersion11: head.isVersion11, keepsAlive: keepsAlive, route: route,
            startedAt: time)
        if head.method.isSafe {
            ifMatch = head.joinedValue(of: "if-match", in: bytes)
            ifNoneMatch = head.joinedValue(of: "if-none-match", in: bytes)
        }
        acceptsGzip = head.acceptsGzip(in: bytes)
        if application.logsRequests {
            forwardedFor = head.joinedValue(of: "x-forwarded-for", in: bytes)
            target = head.target(in: bytes)
        }
        fields = application.fields(of: head, in: bytes, route: route)
    }

    /// A request that is refused before its head is complete.
    ///
    /// - Parameter fields: further header fields of the response.
    package init(refused id: RequestID, at time: UInt64, fields: [(name: StaticString, value: String)]) {
        self.init(id: id, method: .get, isVersion11: true, keepsAlive: false, route: nil, startedAt: time)
        self.fields = fields
    }
}

extension Application {
    /// Returns the fields of the response to a request whose head is known, at least its beginning.
    @inline(__always)
    package func fields(
        of head: RequestHead, in bytes: UnsafeRawBufferPointer, route: Int?
    ) -> [(name: StaticString, value: String)] {
        let fields = readsOrigin ? fields(origin: head.joinedValue(of: "origin", in: bytes), route: route) : []
        guard let name = markedRequestField, head.joinedValue(of: name, in: bytes) != nil else { return fields }
        return fields + markers()
    }
}
