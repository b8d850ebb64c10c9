/// The body of a response that is produced while it is sent, so that its memory stays bounded. The head of the response
/// is sent with the first piece, which may be empty.
public protocol ResponseStream: AnyObject {
    /// Produces the next piece. Called on the connection's event loop when there is room for it.
    ///
    /// Must call exactly one method of the writer, now or later and from any thread. After ``StreamWriter/write(_:)``
    /// it is called again when there is room.
    func produce(_ writer: StreamWriter)
}

/// Receives the pieces of a ``ResponseStream``, and passes them to the connection.
public struct StreamWriter: @unchecked Sendable {
    // Safe to share: the target is used on its own event loop only.
    let target: any ResponseTarget
    /// Identifies the request among those of the target.
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

/// A call of a ``StreamWriter``.
package enum StreamEvent {
    case write([UInt8])
    case finish
    case fail(Response)
}
