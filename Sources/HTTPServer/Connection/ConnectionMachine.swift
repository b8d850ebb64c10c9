/// The state of one connection without its socket: bytes in, requests out; responses in, bytes out. It does no I/O and
/// reads no clock, so every case can be tested without a network.
///
/// Requests are read one at a time. ``nextStep(now:)`` returns the next ``Step``. The driver, a ``Connection``, then
/// calls the methods that the step names.
///
/// ```
///        head ──▶ routed ──▶ buffering ──▶ ready ──▶ head | holding
///                      └───▶ streaming ────────────▶ head | holding
///        any ──▶ finished                        (reads no further request)
/// ```
struct ConnectionMachine: ~Copyable {
    /// An action for the driver of the machine.
    enum Step {
        /// Nothing to do until bytes, a response or a deadline arrive.
        case wait
        /// A head is complete: call `readBody`, or `begin` and then `streamBody`.
        case head
        /// A request is complete: call `begin`, then its handler, then `handled`.
        case request
        /// A piece of a streamed body: use it, then call `usedBodyBytes`.
        case bodyBytes(Range<Int>)
        /// A streamed body is complete.
        case bodyEnd
        /// The request is refused: call `begin`, then respond; then the connection closes.
        case failed(RequestFailure)
    }

    /// The state of reading; see the diagram above.
    enum Reading {
        /// Reads the next head.
        case head
        /// The head is complete and its route is not known yet.
        case routed
        /// The body so far follows the head in the input, up to `end`.
        case buffering(BodyDecoder, end: Int)
        /// The request is complete and waits for its handler.
        case ready(body: Range<Int>)
        /// The body goes to its receiver piece by piece.
        case streaming(BodyDecoder, isPaused: Bool)
        /// A request waits for its response and blocks the requests behind it: it may change state, or its response may
        /// be large.
        case holding
        /// No further request is read. Input is discarded.
        case finished
    }

    /// Bytes that were received and not handled yet, from the start of the current request.
    var input = ByteBuffer()
    var responses = ResponseQueue()
    /// The head of the current request. It is replaced when the next head is complete.
    var head = RequestHead()
    /// The maximum length of the current body in bytes, if it is read as a whole.
    var bodyLimit = 0
    var parser: RequestHeadParser
    let limits: Limits
    /// Whether the peer will send no more.
    private(set) var endOfInput = false
    /// Whether the server is stopping. The connection then closes after the request in progress.
    private(set) var isDraining = false
    /// When the current wait for the peer began, in monotonic nanoseconds.
    var waitingSince: UInt64
    private var state = Reading.head

    /// The state of reading. After the last response nothing more is read.
    var reading: Reading {
        get { responses.isClosing ? .finished : state }
        set { state = newValue }
    }

    init(limits: Limits, now: UInt64) {
        self.limits = limits
        parser = RequestHeadParser(maximumLength: limits.headerBytes, maximumFields: limits.headerFields)
        waitingSince = now
    }

    /// Returns the next step.
    mutating func nextStep(now: UInt64) -> Step {
        while true {
            switch reading {
            case .head:
                guard mayReadRequest, !input.isEmpty else { return .wait }
                return readHead(now)
            case .routed:
                return waitForEarlierResponses(now)
            case .ready:
                preconditionFailure("the previous step was not carried out")
            case .buffering(let decoder, let end):
                return bufferBody(decoder, end: end)
            case .streaming(let decoder, let isPaused):
                return isPaused ? .wait : readStreamedBody(decoder, now)
            case .holding:
                guard responses.isEmpty else { return .wait }
                reading = .head
            case .finished:
                input.consume(input.count)
                return .wait
            }
        }
    }

    /// Whether the next request may be read while earlier ones wait for their responses.
    var mayReadRequest: Bool {
        responses.count < limits.pipelinedRequests && hasRoom && !responses.isStreaming && !responses.isClosing
    }

    /// Whether the unsent responses hold fewer bytes than ``Limits/bufferedOutputBytes``.
    var hasRoom: Bool { responses.output.count + responses.heldBytes < limits.bufferedOutputBytes }

    // MARK: Heads

    private mutating func readHead(_ now: UInt64) -> Step {
        if !parser.hasBegun {
            guard skipEmptyLines() else { return .wait }
            waitingSince = now
        }
        do throws(RequestFailure) {
            guard let head = try parser.parse(input.readableBytes) else { return .wait }
            self.head = head
            waitingSince = now
            reading = .routed
            return waitForEarlierResponses(now)
        } catch {
            return fail(error)
        }
    }

    /// Skips empty lines before a request (RFC 9112 §2.2); they do not begin one.
    ///
    /// - Returns: whether anything else follows.
    private mutating func skipEmptyLines() -> Bool {
        while input.count > 0, input.readableBytes[0] == ByteClass.carriageReturn {
            // CR alone may become an empty line, so it begins no request either.
            guard input.count > 1 else { return endOfInput }
            guard input.readableBytes[1] == ByteClass.lineFeed else { return true }
            input.consume(2)
        }
        return !input.isEmpty
    }

    /// A request with a body waits until it is the only one: `100 (Continue)` must not overtake earlier responses, and
    /// its body may be streamed.
    private mutating func waitForEarlierResponses(_ now: UInt64) -> Step {
        guard responses.isEmpty || head.body == .none else { return .wait }
        waitingSince = now
        return .head
    }

    // MARK: Requests

    /// Registers a request.
    ///
    /// - Returns: the sequence number that its response refers to.
    mutating func begin(_ request: PendingRequest) -> UInt64 {
        var request = request
        if isDraining { request.keepsAlive = false }
        return responses.append(request)
    }

    /// The position in the input of the body of a request that is ready.
    var bodyRange: Range<Int> {
        if case .ready(let body) = reading { return body }
        return head.length..<head.length
    }

    /// Releases the bytes of the request that was ready, because its handler has returned.
    ///
    /// - Parameter holdsNext: whether the requests behind it wait for its response.
    mutating func handled(holdsNext: Bool) {
        guard case .ready(let body) = reading else { return }
        input.consume(body.upperBound)
        finishRequest(holdsNext: holdsNext)
    }

    /// Prepares for the next head, after the current request has been read.
    mutating func finishRequest(holdsNext: Bool) {
        parser.reset()
        reading = responses.isEmpty || (!holdsNext && head.keepsAlive) ? .head : .holding
        if isDraining, responses.isEmpty { reading = .finished }
    }

    // MARK: Ending

    /// Refuses the request that is being read, and reads no further one.
    mutating func fail(_ failure: RequestFailure) -> Step {
        head.keepsAlive = false
        reading = .finished
        return .failed(failure)
    }

    /// Refuses the request whose header or body did not arrive in time.
    mutating func timedOut(_ reason: Deadline) -> RequestFailure {
        head.keepsAlive = false
        reading = .finished
        return RequestFailure(.requestTimeout, "the \(reason == .header ? "header" : "body") did not arrive in time")
    }

    /// Makes the connection close after the response to the last request.
    mutating func endAfterLast() {
        responses.keepAliveAfterLast(false)
    }

    /// Makes the connection close after the response to the request in progress, or at once if there is none.
    mutating func drain() {
        isDraining = true
        responses.keepAliveAfterLast(false)
        switch reading {
        case .head where responses.isEmpty && !input.isEmpty: break
        case .head, .holding: reading = .finished
        default: break
        }
    }

    /// Notes that the peer will send no more.
    mutating func inputEnded() {
        endOfInput = true
    }

    /// Notes that the socket has taken the whole output.
    mutating func outputWasSent() {
        // An idle connection keeps at most 16 KiB for each buffer, even after a large message.
        responses.output.shrink(to: 16 * 1024)
        input.shrink(to: 16 * 1024)
        responses.outputWasSent()
    }
}
