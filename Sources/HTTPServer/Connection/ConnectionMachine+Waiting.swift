/// The events for which the machine waits, and its deadline. The ``Connection`` reads them before it waits for the
/// socket.
extension ConnectionMachine {
    /// The event that must happen before a deadline. ``Limits`` has the time for each.
    enum Deadline {
        case header, body, idle, write, response
    }

    /// Whether to receive bytes from the peer.
    var wantsInput: Bool {
        guard !endOfInput, hasRoom else { return false }
        switch reading {
        // The input may hold requests that wait for room. More of them wait in the kernel, and then at the peer.
        case .head: return mayReadRequest && input.count < limits.headerBytes
        case .buffering: return true
        case .streaming(_, let isPaused): return !isPaused
        // Only reading shows that the peer has closed the connection.
        case .holding: return input.count < limits.headerBytes
        case .routed, .ready: return false
        case .finished: return true
        }
    }

    /// Whether no request has begun and no response is due.
    var isIdle: Bool {
        guard case .head = reading else { return false }
        return responses.isEmpty && responses.output.isEmpty && !parser.hasBegun && input.isEmpty
    }

    /// Whether every response is in the output and no further one will follow.
    var isDone: Bool {
        if responses.isClosing { return true }
        guard responses.isEmpty else { return false }
        switch reading {
        case .finished: return true
        // Complete requests that arrived before the end of the input still get their responses.
        case .head: return endOfInput && (input.isEmpty || parser.hasBegun)
        case .routed, .buffering, .ready, .streaming, .holding: return false
        }
    }

    /// Whether the peer may still be sending. Closing at once would reset the connection before the peer has read the
    /// response (RFC 9112 §9.6).
    var mustLinger: Bool {
        if endOfInput { return false }
        if case .finished = reading { return true }
        return !input.isEmpty
    }

    /// Whether the machine can continue without an event: a stream can produce its next piece, or the input has
    /// requests.
    var mayGoOn: Bool {
        if responses.isStreaming { return true }
        switch reading {
        case .head: return !input.isEmpty && mayReadRequest
        case .routed, .holding: return responses.isEmpty
        case .buffering, .ready, .streaming, .finished: return false
        }
    }

    /// Returns the stream that should produce its next piece, if there is room for one.
    mutating func streamToPull() -> (stream: any ResponseStream, sequence: UInt64)? {
        responses.output.count < limits.bufferedOutputBytes ? responses.streamToPull() : nil
    }

    /// Returns the next deadline in monotonic nanoseconds.
    ///
    /// - Parameter lastWrite: when the peer last took bytes.
    func deadline(lastWrite: UInt64) -> (reason: Deadline, at: UInt64) {
        if !responses.output.isEmpty { return (.write, lastWrite &+ limits.writeSeconds.nanoseconds) }
        switch reading {
        case .head where parser.hasBegun && responses.isEmpty:
            // Time in which pending responses blocked reading does not count against the peer.
            return (.header, max(waitingSince, lastWrite) &+ limits.headerSeconds.nanoseconds)
        case .buffering:
            return (.body, waitingSince &+ limits.bodySeconds.nanoseconds)
        case .streaming(_, isPaused: false):
            return (.body, waitingSince &+ limits.bodySeconds.nanoseconds)
        case _ where responses.isStreaming:
            let since = max(responses.oldestStart, waitingSince, lastWrite)
            return (.response, since &+ limits.responseSeconds.nanoseconds)
        case _ where !responses.isEmpty:
            let since = max(responses.oldestStart, waitingSince)
            return (.response, since &+ limits.responseSeconds.nanoseconds)
        default:
            return (.idle, max(waitingSince, lastWrite) &+ limits.idleSeconds.nanoseconds)
        }
    }
}
