/// One connection without its socket: bytes in, requests out; answers in, bytes out. It knows no clock but the
/// times it is given, and does nothing by itself, so that every case can be tested without a network.
///
/// Requests are read one by one. ``nextStep(now:)`` says what is to be done next; what the driver does then is told
/// to the machine by the method that the step names.
///
/// ```
///        head ──▶ routed ──▶ buffering ──▶ ready ──▶ head | holding
///                      └───▶ streaming ────────────▶ head | holding
///        any ──▶ finished                        (no further request is read)
/// ```
struct ConnectionMachine: ~Copyable {
    enum Step {
        /// Nothing to do until bytes, an answer or a deadline come.
        case wait
        /// A head is whole: call `readBody`, or `begin` and then `streamBody`.
        case head
        /// A request is whole: call `begin`, then its handler, then `handled`.
        case request
        /// A piece of a streamed body: use it, then call `usedBodyBytes`.
        case bodyBytes(Range<Int>)
        /// A streamed body is complete.
        case bodyEnd
        /// The request was refused: call `begin`, then answer; the connection closes after that.
        case failed(RequestFailure)
    }

    enum Reading {
        case head
        case routed
        /// The body up to `end` stands behind the head in the input.
        case buffering(BodyReader, end: Int)
        case ready(body: Range<Int>)
        case streaming(BodyReader, isPaused: Bool)
        /// A request waits for its answer, and those behind it must wait too: it may change something, or its answer may
        /// be large.
        case holding
        case finished
    }

    var input = ByteBuffer()
    var output = OutputQueue()
    private(set) var head = RequestHead()
    private(set) var answers = AnswerQueue()
    private(set) var reading = Reading.head
    private(set) var parser: RequestHeadParser
    let limits: Limits
    private(set) var endOfInput = false
    private var isDraining = false
    /// When what is being waited for began, in monotonic nanoseconds.
    private(set) var waitingSince: UInt64

    init(limits: Limits, now: UInt64) {
        self.limits = limits
        parser = RequestHeadParser(maximumLength: limits.headerBytes, maximumFields: limits.headerFields)
        waitingSince = now
    }

    // MARK: Requests in

    /// What to do next.
    mutating func nextStep(now: UInt64) -> Step {
        while true {
            switch reading {
            case .head:
                guard mayReadRequest, !input.isEmpty else { return .wait }
                return readHead(now)
            case .routed:
                return awaitTurn(now)
            case .ready:
                preconditionFailure("the step before was not carried out")
            case .buffering(let reader, let end):
                return buffer(reader, end: end)
            case .streaming(let reader, let isPaused):
                return isPaused ? .wait : stream(reader, now)
            case .holding:
                guard answers.isEmpty else { return .wait }
                reading = .head
            case .finished:
                input.consume(input.count)
                return .wait
            }
        }
    }

    /// Whether the next request may be handled, whose response will wait for those before it.
    var mayReadRequest: Bool {
        answers.count < limits.pipelinedRequests && hasRoom && !answers.isStreaming && !answers.isClosing
    }

    /// Whether less waits to be sent than may.
    var hasRoom: Bool { output.count + answers.heldBytes < limits.bufferedOutputBytes }

    private mutating func readHead(_ now: UInt64) -> Step {
        if !parser.hasBegun {
            guard skipEmptyLines() else { return .wait }
            waitingSince = now
        }
        do throws(RequestFailure) {
            guard let head = try parser.parse(input.readableBytes) else {
                return .wait
            }
            self.head = head
            waitingSince = now
            reading = .routed
            return awaitTurn(now)
        } catch {
            return fail(error)
        }
    }

    /// Empty lines before a request are ignored (RFC 9112 §2.2): they begin none.
    ///
    /// - Returns: whether there is something else.
    private mutating func skipEmptyLines() -> Bool {
        while input.count > 0, input.readableBytes[0] == ByteClass.carriageReturn {
            // A line that is there in part is waited for, but begins no request either.
            guard input.count > 1 else { return endOfInput }
            guard input.readableBytes[1] == ByteClass.lineFeed else { return true }
            input.consume(2)
        }
        return !input.isEmpty
    }

    /// A request whose client waits for 100 (Continue) is looked at when it is the only one: an interim answer must
    /// not overtake the answers of earlier requests. So is one with a body that may be streamed.
    private mutating func awaitTurn(_ now: UInt64) -> Step {
        guard answers.isEmpty || head.body == .none else { return .wait }
        waitingSince = now
        return .head
    }

    /// The body of the head just read is wanted as a whole.
    mutating func readBody() {
        if !isBodyTooLarge { sendContinueIfAwaited() }
        reading = .buffering(bodyReader, end: head.length)
    }

    /// The body of the head just read is wanted piece by piece, or not at all; the head's bytes are no longer needed.
    mutating func streamBody(isWanted: Bool) {
        guard !answers.isClosing else { return }
        guard isWanted || head.body == .none else {
            reading = .finished
            return
        }
        if isWanted { sendContinueIfAwaited() }
        answers.keepAliveAfterLast(head.keepsAlive && !isDraining)
        input.consume(head.length)
        reading = .streaming(bodyReader, isPaused: false)
    }

    private var bodyReader: BodyReader {
        switch head.body {
        case .none: .fixed(remaining: 0)
        case .fixed(let length): .fixed(remaining: length)
        case .chunked: .chunked(ChunkedDecoder(maximumFraming: limits.headerBytes))
        }
    }

    /// Tells the client to send the body it holds back (RFC 9110 §10.1.1), unless it has begun to.
    private mutating func sendContinueIfAwaited() {
        if head.expectsContinue, input.count == head.length { output.bytes.append("HTTP/1.1 100 Continue\r\n\r\n") }
    }

    /// Reads the body to the place behind the head, whatever its coding: chunks are moved together, each byte once.
    private mutating func buffer(_ reader: BodyReader, end: Int) -> Step {
        if isBodyTooLarge { return fail(bodyTooLarge) }
        var reader = reader
        var end = end
        var position = end
        do throws(RequestFailure) {
            while true {
                let piece = try reader.next(input.readableBytes[slice: position..<input.count])
                switch piece {
                case .needsMore(let framing):
                    input.remove(end..<position + framing)
                    reading = .buffering(reader, end: end)
                    return endOfInput ? fail(bodyEndsEarly) : .wait
                case .data(let framing, let data):
                    position += framing
                    input.move(position..<position + data, to: end)
                    position += data
                    end += data
                    if end - head.length > limits.bodyBytes { return fail(bodyTooLarge) }
                case .end(let framing):
                    input.remove(end..<position + framing)
                    reading = .ready(body: head.length..<end)
                    return .request
                }
            }
        } catch {
            return fail(error)
        }
    }

    /// Whether the head announces a body over the limit.
    private var isBodyTooLarge: Bool {
        if case .fixed(let length) = head.body { return length > limits.bodyBytes }
        return false
    }

    private var bodyEndsEarly: RequestFailure {
        RequestFailure(.badRequest, "the body must be complete; the connection ended early")
    }

    private var bodyTooLarge: RequestFailure {
        RequestFailure(.contentTooLarge, "the body must be at most \(limits.bodyBytes) bytes long")
    }

    private mutating func stream(_ reader: BodyReader, _ now: UInt64) -> Step {
        var reader = reader
        do throws(RequestFailure) {
            let piece = try reader.next(input.readableBytes)
            reading = .streaming(reader, isPaused: false)
            switch piece {
            case .needsMore(let framing):
                input.consume(framing)
                return endOfInput ? fail(bodyEndsEarly) : .wait
            case .data(let framing, let data):
                waitingSince = now
                return .bodyBytes(framing..<framing + data)
            case .end(let framing):
                input.consume(framing)
                waitingSince = now
                finishRequest(holdsNext: true)
                return .bodyEnd
            }
        } catch {
            return fail(error)
        }
    }

    /// A piece of a streamed body was used.
    mutating func usedBodyBytes(_ range: Range<Int>, wantsMore: Bool) {
        input.consume(range.upperBound)
        if !wantsMore, case .streaming(let reader, _) = reading { reading = .streaming(reader, isPaused: true) }
    }

    /// The peer is waited for from now on: it is not to blame for the pause.
    mutating func resumeBody(now: UInt64) {
        guard case .streaming(let reader, true) = reading else { return }
        reading = .streaming(reader, isPaused: false)
        waitingSince = now
    }

    /// What is held of a body that has come in part and is wanted as a whole, in bytes.
    var unfinishedBodyBytes: Int {
        if case .buffering = reading { return input.count }
        return 0
    }

    /// The body that has come in part will not be waited for.
    mutating func refuseBody() -> RequestFailure {
        var detail = "the memory for unfinished requests is full; try again later"
        // Of a body that is taken piece by piece, the pieces that came have been.
        if case .buffering = reading { detail += "; nothing was done" }
        head.keepsAlive = false
        reading = .finished
        return RequestFailure(.serviceUnavailable, detail)
    }

    /// The body's place in the input, of a request that is ready.
    var bodyRange: Range<Int> {
        if case .ready(let body) = reading { return body }
        return head.length..<head.length
    }

    /// The request that was ready has been handled, and its bytes are no longer needed.
    ///
    /// - Parameter holdsNext: whether the requests behind it wait for its answer.
    mutating func handled(holdsNext: Bool) {
        guard case .ready(let body) = reading else { return }
        input.consume(body.upperBound)
        finishRequest(holdsNext: holdsNext)
    }

    private mutating func finishRequest(holdsNext: Bool) {
        parser.reset()
        reading = answers.isEmpty || (!holdsNext && head.keepsAlive) ? .head : .holding
        if answers.isClosing || (isDraining && answers.isEmpty) { reading = .finished }
    }

    private mutating func fail(_ failure: RequestFailure) -> Step {
        head.keepsAlive = false
        reading = .finished
        return .failed(failure)
    }

    /// No request is read after the one that came last.
    mutating func endAfterLast() {
        answers.keepAliveAfterLast(false)
    }

    /// The connection ends when the request in progress, if any, has been answered.
    mutating func drain() {
        isDraining = true
        answers.keepAliveAfterLast(false)
        switch reading {
        case .head where answers.isEmpty && !input.isEmpty: break
        case .head, .holding: reading = .finished
        default: break
        }
    }

    /// The peer will send no more.
    mutating func inputEnded() {
        endOfInput = true
    }

    // MARK: Answers out

    /// Takes note of a request, and gives it the number by which its answer will be known.
    mutating func begin(_ request: PendingRequest) -> UInt64 {
        var request = request
        if isDraining { request.keepsAlive = false }
        return answers.append(request)
    }

    /// Keeps for the log who makes a request.
    mutating func note(caller: String, of sequence: UInt64) {
        answers.note(caller: caller, of: sequence)
    }

    mutating func answer(
        _ response: Response, sequence: UInt64, date: [UInt8], completed: (PendingRequest, Status) -> Void
    ) {
        answers.answer(response, sequence: sequence, date: date, into: &output, completed: completed)
        if answers.isClosing { reading = .finished }
    }

    mutating func streamWrote(_ bytes: [UInt8], sequence: UInt64, date: [UInt8]) {
        answers.streamWrote(bytes, sequence: sequence, date: date, into: &output)
    }

    mutating func streamFinished(
        sequence: UInt64, date: [UInt8], completed: (PendingRequest, Status) -> Void
    ) {
        answers.streamFinished(sequence: sequence, date: date, into: &output, completed: completed)
        if answers.isClosing { reading = .finished }
    }

    /// - Returns: whether the stream could be answered by something else; if not, the connection must be cut.
    mutating func streamFailed(
        _ response: Response, sequence: UInt64, date: [UInt8], completed: (PendingRequest, Status) -> Void
    ) -> Bool {
        let isAnswered = answers.streamFailed(
            response, sequence: sequence, date: date, into: &output, completed: completed)
        if answers.isClosing { reading = .finished }
        return isAnswered
    }

    /// The stream that wants to be asked for more now, if any.
    mutating func streamToPull() -> (stream: any ResponseStream, sequence: UInt64)? {
        output.count < limits.bufferedOutputBytes ? answers.streamToPull() : nil
    }

    /// The kernel has taken all of the output.
    mutating func outputWasSent() {
        output.shrink(to: 16 * 1024)
        input.shrink(to: 16 * 1024)
        answers.writtenWasSent()
    }

    /// The connection is gone: nothing of it is to keep a stream alive.
    mutating func abandon(completed: (PendingRequest, Status) -> Void) {
        answers.abandon(completed: completed)
    }

    /// The deadline for a header or a body has passed: the request is refused.
    mutating func timedOut(_ reason: Deadline) -> RequestFailure {
        head.keepsAlive = false
        reading = .finished
        return RequestFailure(.requestTimeout, "the \(reason == .header ? "header" : "body") did not arrive in time")
    }
}
