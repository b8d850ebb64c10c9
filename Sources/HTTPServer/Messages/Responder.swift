/// Sends the response to one request. A handler gets a responder with each request, and may use it from any thread, at
/// once or later. Only the first response is sent; if the connection is closed by then, none is.
public struct Responder: @unchecked Sendable {
    // Safe to share: the target is used on its own event loop only.
    let target: any ResponseTarget
    /// Identifies the request among those of the target.
    let sequence: UInt64

    @inline(__always)
    package init(target: any ResponseTarget, sequence: UInt64) {
        self.target = target
        self.sequence = sequence
    }

    @inline(__always)
    public func send(_ response: Response) {
        if target.loop.isCurrent {
            target.respond(response, to: sequence)
        } else {
            sendFromOtherThread(response)
        }
    }

    /// Sends the response that asynchronous work returns. The work begins at once and runs on the event loop; it is
    /// cancelled when the connection is closed. On the event loop only.
    ///
    /// - Parameter work: returns the response; `nil` if it was sent, or will be sent, in another way.
    public func send(_ work: @escaping () async -> Response?) {
        let task = target.loop.start {
            if let response = await work() { send(response) }
        }
        target.setTask(task, of: sequence)
    }

    private func sendFromOtherThread(_ response: Response) {
        let handover = UncheckedBox(value: response)
        target.loop.submit { target.respond(handover.value, to: sequence) }
    }

    /// Sets the caller's name for ``RequestSummary/caller``. On the event loop only.
    @inline(__always)
    public func setCaller(_ name: String) {
        target.setCaller(name, of: sequence)
    }

    /// Resumes a streamed request body after ``BodyReceiver/received(_:)`` paused it.
    public func resumeReading() {
        target.loop.submit { target.resumeReading() }
    }

    /// Lets the event loop serve other requests before the caller, a task of the loop, continues.
    public func yield() async {
        await withUnsafeContinuation { continuation in _ = target.loop.submit { continuation.resume() } }
    }
}

/// The body of a response that is produced while it is sent, so that its memory stays bounded. The head of the response
/// is sent with the first piece, which may be empty.
public protocol ResponseStream: AnyObject {
    /// Produces the next piece. Called on the connection's event loop when there is room for it.
    ///
    /// Must call exactly one method of the writer, now or later and from any thread. After ``StreamWriter/write(_:)``
    /// it is called again when there is room.
    func produce(_ writer: StreamWriter)
}

/// Takes the pieces of a ``ResponseStream``.
public struct StreamWriter: @unchecked Sendable {
    // Safe to share: the target is used on its own event loop only.
    let target: any ResponseTarget
    let sequence: UInt64

    package init(target: any ResponseTarget, sequence: UInt64) {
        self.target = target
        self.sequence = sequence
    }

    /// Begins asynchronous work on the event loop. The work must call one of the other methods. On the event loop only.
    public func start(_ work: @escaping () async -> Void) {
        target.loop.start(work)
    }

    /// Adds a piece to the body.
    public func write(_ bytes: [UInt8]) {
        send(.write(bytes))
    }

    /// Completes the body.
    public func finish() {
        send(.finish)
    }

    /// Gives up the body. The client gets `response` if nothing was written yet; otherwise the connection is cut, so
    /// that the client notices.
    public func fail(_ response: Response) {
        send(.fail(response))
    }

    private func send(_ event: StreamEvent) {
        if target.loop.isCurrent {
            target.continueStream(event, of: sequence)
        } else {
            let handover = UncheckedBox(value: event)
            target.loop.submit { target.continueStream(handover.value, of: sequence) }
        }
    }
}

/// What happens to a streamed response.
package enum StreamEvent {
    case write([UInt8])
    case finish
    case fail(Response)
}

/// Where responses go: a ``Connection``, or a ``ResponseCollector`` in place of one. Except for `loop`, used on its
/// event loop only. `sequence` says which request of the target a call refers to.
package protocol ResponseTarget: AnyObject {
    var loop: EventLoop { get }
    func respond(_ response: Response, to sequence: UInt64)
    func continueStream(_ event: StreamEvent, of sequence: UInt64)
    func resumeReading()
    func setCaller(_ name: String, of sequence: UInt64)
    /// Sets the task to be cancelled if the request is given up before its response.
    func setTask(_ task: Task<Void, Never>, of sequence: UInt64)
}

/// A value on its way to the event loop. Safe: its sender no longer uses it.
struct UncheckedBox<Value>: @unchecked Sendable {
    let value: Value
}

/// The id that a response and its log line carry, so that an operator can match them with the client's log. It is the
/// client's `X-Request-Id` if that is usable, or else an id that is unique within the process.
public enum RequestID: Sendable, CustomStringConvertible {
    case given(String)
    /// - Parameter loop: a random number that the event loop chose at its start.
    case generated(loop: UInt32, count: UInt64)

    /// Accepts 1 to 128 visible ASCII characters.
    package init?(_ value: UnsafeRawBufferPointer) {
        guard (1...128).contains(value.count), value.allSatisfy(ByteClass.isVisible) else { return nil }
        self = .given(String(decoding: value, as: UTF8.self))
    }

    func append(to output: inout ByteBuffer) {
        switch self {
        case .given(let text):
            output.append(text)
        case .generated(let loop, let count):
            output.append(hexadecimal: UInt64(loop), width: 8)
            output.append(UInt8(ascii: "-"))
            output.append(hexadecimal: count)
        }
    }

    public var description: String {
        var buffer = ByteBuffer()
        append(to: &buffer)
        return buffer.withReadableBytes { String(decoding: $0, as: UTF8.self) }
    }
}
