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

/// The destination of responses: a ``Connection``, or a ``ResponseCollector`` in place of one. All members except
/// `loop` are used on the event loop of the target only. The parameter `sequence` identifies one of the target's
/// requests.
package protocol ResponseTarget: AnyObject {
    var loop: EventLoop { get }
    /// Responds to a request. A second response to the same request is dropped.
    func respond(_ response: Response, to sequence: UInt64)
    /// Takes the next event of a streamed response.
    func continueStream(_ event: StreamEvent, of sequence: UInt64)
    /// Continues to read the streamed body of the current request after a pause.
    func resumeReading()
    /// Sets the name of the caller for the access log.
    func setCaller(_ name: String, of sequence: UInt64)
    /// Sets the task that is cancelled if the request is given up before its response.
    func setTask(_ task: Task<Void, Never>, of sequence: UInt64)
}

/// A value on its way to the event loop. Safe: its sender no longer uses it.
struct UncheckedBox<Value>: @unchecked Sendable {
    let value: Value
}
