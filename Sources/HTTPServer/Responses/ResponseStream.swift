/// The body of an answer that is made while it is sent, so that its size in memory stays bounded. The answer's head is
/// sent with the first piece, which may be empty.
public protocol ResponseStream: AnyObject {
    /// Called on the connection's event loop when there is room for more. Calls, now or later and from any thread,
    /// exactly one of the writer's methods; after ``StreamWriter/write(_:)`` it is called again when there is room.
    func produce(_ writer: StreamWriter)
}

/// Takes the pieces of a ``ResponseStream``.
public struct StreamWriter: @unchecked Sendable {
    // Safe to share: the connection is touched on its own event loop only.
    let connection: Connection
    let sequence: UInt64

    public func write(_ bytes: [UInt8]) {
        perform { $0.streamWrote(bytes, sequence: $1) }
    }

    /// The body is complete.
    public func finish() {
        perform { $0.streamFinished(sequence: $1) }
    }

    /// The body cannot be completed. The client gets `response` if nothing has been written; otherwise the connection
    /// is cut, so that the client can tell.
    public func fail(_ response: Response) {
        let handover = Handover(response: response)
        perform { $0.streamFailed(handover.response, sequence: $1) }
    }

    private func perform(_ body: @escaping @Sendable (Connection, UInt64) -> Void) {
        if connection.loop.isCurrent {
            body(connection, sequence)
        } else {
            connection.loop.submit { body(connection, sequence) }
        }
    }
}
