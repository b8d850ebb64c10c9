/// Reads request bodies: as a whole, stored after the head, or piece by piece.
extension ConnectionMachine {
    /// Reads the body of the current head as a whole.
    ///
    /// - Parameter limit: the maximum length of the body in bytes; `nil` for the configured one.
    mutating func readBody(limit: Int? = nil) {
        bodyLimit = limit ?? limits.bodyBytes
        if awaitsContinue, !isBodyTooLarge { sendContinue() }
        reading = .buffering(bodyDecoder, end: head.length)
    }

    /// Reads the body of the current head piece by piece, and releases the bytes of the head.
    ///
    /// - Parameter isWanted: `false` to read no body.
    mutating func streamBody(isWanted: Bool) {
        guard !responses.isClosing else { return }
        guard isWanted || head.body == .none else {
            reading = .finished
            return
        }
        if isWanted, awaitsContinue { sendContinue() }
        responses.keepAliveAfterLast(head.keepsAlive && !isDraining)
        input.consume(head.length)
        reading = .streaming(bodyDecoder, isPaused: false)
    }

    private var bodyDecoder: BodyDecoder {
        switch head.body {
        case .none: .fixed(remaining: 0)
        case .fixed(let length): .fixed(remaining: length)
        case .chunked: .chunked(ChunkedDecoder(maximumFraming: limits.headerBytes))
        }
    }

    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    var awaitsContinue: Bool { head.expectsContinue && input.count == head.length }

    private mutating func sendContinue() {
        responses.output.bytes.append("HTTP/1.1 100 Continue\r\n\r\n")
    }

    /// Reads no body, because the request has been refused by its head.
    mutating func refuseBeforeBody() {
        reading = .finished
    }

    // MARK: Buffered bodies

    /// Collects the body after the head. Chunks are joined in place, and each byte is moved once.
    mutating func bufferBody(_ decoder: BodyDecoder, end: Int) -> Step {
        if isBodyTooLarge { return fail(bodyTooLarge) }
        var decoder = decoder
        var end = end
        var position = end
        do throws(RequestFailure) {
            while true {
                switch try decoder.next(input.readableBytes[slice: position..<input.count]) {
                case .needsMore(let framing):
                    input.remove(end..<position + framing)
                    reading = .buffering(decoder, end: end)
                    return endOfInput ? fail(bodyEndsEarly) : .wait
                case .data(let framing, let data):
                    position += framing
                    input.move(position..<position + data, to: end)
                    position += data
                    end += data
                    if end - head.length > bodyLimit { return fail(bodyTooLarge) }
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

    /// Whether the head announces a body beyond the limit.
    private var isBodyTooLarge: Bool {
        if case .fixed(let length) = head.body { return length > bodyLimit }
        return false
    }

    private var bodyEndsEarly: RequestFailure {
        RequestFailure(.badRequest, "the body must be complete; the connection ended early")
    }

    private var bodyTooLarge: RequestFailure { .bodyTooLarge(limit: bodyLimit) }

    /// The size of an incomplete body that is read as a whole, with its head.
    var unfinishedBodyBytes: Int {
        if case .buffering = reading { return input.count }
        return 0
    }

    /// Refuses the incomplete body, for lack of memory.
    mutating func refuseBody() -> RequestFailure {
        var detail = "the memory for unfinished requests is full; try again later"
        // Pieces of a streamed body may have had an effect already.
        if case .buffering = reading { detail += "; nothing was done" }
        head.keepsAlive = false
        reading = .finished
        return RequestFailure(.serviceUnavailable, detail)
    }

    // MARK: Streamed bodies

    /// Finds the next piece of a streamed body in the input.
    mutating func readStreamedBody(_ decoder: BodyDecoder, _ now: UInt64) -> Step {
        var decoder = decoder
        do throws(RequestFailure) {
            let piece = try decoder.next(input.readableBytes)
            reading = .streaming(decoder, isPaused: false)
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

    /// Releases a piece of a streamed body, because the receiver has used it.
    mutating func usedBodyBytes(_ range: Range<Int>, wantsMore: Bool) {
        input.consume(range.upperBound)
        if !wantsMore, case .streaming(let decoder, _) = reading { reading = .streaming(decoder, isPaused: true) }
    }

    /// Resumes a paused body. The deadline for the next piece begins now, because the receiver has caused the pause and
    /// not the peer.
    mutating func resumeBody(now: UInt64) {
        guard case .streaming(let decoder, true) = reading else { return }
        reading = .streaming(decoder, isPaused: false)
        waitingSince = now
    }
}
