/// What the machine waits for, and until when: what its driver asks before it waits for the socket.
extension ConnectionMachine {
    /// Whether bytes are wanted from the peer.
    var wantsInput: Bool {
        guard !endOfInput, hasRoom else { return false }
        switch reading {
        // What is left here are requests that wait for room; more of them wait in the kernel, and then at the peer.
        case .head: return mayReadRequest && input.count < limits.headerBytes
        case .buffering: return true
        case .streaming(_, let isPaused): return !isPaused
        // A peer that goes away while it waits is told by the bytes' end; a few more bytes are no harm.
        case .holding: return input.count < limits.headerBytes
        case .routed, .ready: return false
        case .finished: return true
        }
    }

    /// Whether it is in the middle of nothing: no request has begun, no answer is owed.
    var isIdle: Bool {
        guard case .head = reading else { return false }
        return answers.isEmpty && output.isEmpty && !parser.hasBegun && input.isEmpty
    }

    /// Whether all that was owed is in the output and no more will come.
    var isDone: Bool {
        if answers.isClosing { return true }
        guard answers.isEmpty else { return false }
        switch reading {
        case .finished: return true
        // What came before the end and has not been looked at yet is still answered.
        case .head: return endOfInput && (input.isEmpty || parser.hasBegun)
        case .routed, .buffering, .ready, .streaming, .holding: return false
        }
    }

    /// Whether the peer may still be sending what nobody will read: then it must be given time to read the answer
    /// before the connection is reset (RFC 9112 §9.6).
    var mustLinger: Bool {
        if endOfInput { return false }
        if case .finished = reading { return true }
        return !input.isEmpty
    }

    /// Whether there is something to do for which no event will come: a stream to pull, or requests in the input.
    var mayGoOn: Bool {
        if answers.isStreaming { return true }
        switch reading {
        case .head: return !input.isEmpty && mayReadRequest
        case .routed, .holding: return answers.isEmpty
        case .buffering, .ready, .streaming, .finished: return false
        }
    }

    /// What is being waited for, and until when (monotonic nanoseconds).
    func deadline(lastWrite: UInt64) -> (reason: Deadline, at: UInt64) {
        if !output.isEmpty { return (.write, lastWrite &+ limits.writeSeconds.nanoseconds) }
        switch reading {
        case .head where parser.hasBegun && answers.isEmpty:
            // While answers were in the way of reading, the peer is not to blame.
            return (.header, max(waitingSince, lastWrite) &+ limits.headerSeconds.nanoseconds)
        case .buffering:
            return (.body, waitingSince &+ limits.bodySeconds.nanoseconds)
        case .streaming(_, isPaused: false):
            return (.body, waitingSince &+ limits.bodySeconds.nanoseconds)
        case _ where answers.isStreaming:
            return (.answer, max(answers.oldestStart, waitingSince, lastWrite) &+ limits.answerSeconds.nanoseconds)
        case _ where !answers.isEmpty:
            return (.answer, max(answers.oldestStart, waitingSince) &+ limits.answerSeconds.nanoseconds)
        default:
            return (.idle, max(waitingSince, lastWrite) &+ limits.idleSeconds.nanoseconds)
        }
    }

    enum Deadline {
        case header, body, idle, write, answer
    }
}
