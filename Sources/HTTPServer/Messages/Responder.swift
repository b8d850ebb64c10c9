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

/// What ties an answer, its log line and its caller's log line together: the client's `X-Request-Id` when it sent a
/// usable one, else one made here, unique to the process.
public enum RequestID: Sendable, CustomStringConvertible {
    case given(String)
    /// A number drawn when its event loop started, and a count.
    case generated(loop: UInt32, count: UInt64)

    /// A client's id is kept if it is 1 to 128 visible ASCII characters.
    init?(_ value: UnsafeRawBufferPointer) {
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
