/// Takes the answer to one request, once, from any thread, at once or later. What arrives after the connection is
/// gone is dropped.
public struct Responder: @unchecked Sendable {
    // Safe to share: the connection is touched on its own event loop only.
    let connection: Connection
    let sequence: UInt64

    @inline(__always)
    public func send(_ response: Response) {
        if connection.loop.isCurrent {
            connection.answer(response, sequence: sequence)
        } else {
            sendFromElsewhere(response)
        }
    }

    private func sendFromElsewhere(_ response: Response) {
        let handover = Handover(response: response)
        connection.loop.submit { connection.answer(handover.response, sequence: sequence) }
    }

    /// Has the name of who makes the request told with its summary. Called where the handler was called.
    @inline(__always)
    public func note(caller: String) {
        connection.note(caller: caller, of: sequence)
    }

    /// Goes on reading a streamed request body after ``BodyReceiver/received(_:)`` asked for a pause.
    public func resumeReading() {
        connection.loop.submit { connection.resumeBody() }
    }

    /// Runs work that belongs to this request on the connection's event loop: at once when called there.
    public func onEventLoop(_ work: @escaping @Sendable () -> Void) {
        connection.loop.run(work)
    }

    /// Whether the connection is there to be answered. On its event loop only.
    public var isOpen: Bool { !connection.isClosed }

    /// Runs work that belongs to this request on the connection's event loop, after others have had their turn.
    public func later(_ work: @escaping @Sendable () -> Void) {
        connection.loop.submit(work)
    }
}

/// A response on its way to the event loop. Safe: its sender does not use it any more.
struct Handover: @unchecked Sendable {
    let response: Response
}
