/// Bytes that wait to be sent, in order. Heads and small bodies are copied into one buffer, so that many responses go
/// out with one system call. A large body stays in its own array, so that a body shared by many responses is in memory
/// only once.
///
/// ```
/// bytes    | head small head | small head |      Body.position: how many of these bytes precede the body
/// bodies                     ^ large      ^ large
/// ```
struct OutputQueue: ~Copyable {
    /// Heads and small bodies.
    var bytes = ByteBuffer()
    /// Large bodies, in order.
    private var bodies: [Body] = []
    /// The unsent bytes of all large bodies.
    private var bodyBytes = 0

    /// A large body.
    private struct Body {
        let bytes: [UInt8]
        /// The number of bytes of the body that have been sent.
        var sent = 0
        /// The number of buffered bytes that precede the body.
        var position: Int
    }

    /// The size in bytes from which a body is sent from its own array. Below it, copying is cheaper than sending
    /// another piece.
    static let largeBody = 16 * 1024

    var count: Int {
        @inline(__always) get { bytes.count + bodyBytes }
    }

    var isEmpty: Bool {
        @inline(__always) get { bytes.isEmpty && bodies.isEmpty }
    }

    /// Appends a body after everything that was appended earlier.
    @inline(__always)
    mutating func append(body: [UInt8]) {
        guard body.count >= Self.largeBody else { return bytes.append(body) }
        bodies.append(Body(bytes: body, position: bytes.count))
        bodyBytes += body.count
    }

    /// Lends the pieces that one system call should send. They may be empty and are valid only during the call.
    ///
    /// - Parameter send: called with three pieces, in the order in which they are sent: the buffered bytes before the
    ///   first large body, the unsent part of this body, and the buffered bytes between this body and the next one.
    func withNextPieces<Result>(
        _ send: (
            _ before: UnsafeRawBufferPointer, _ body: UnsafeRawBufferPointer, _ after: UnsafeRawBufferPointer
        ) -> Result
    ) -> Result {
        let buffered = bytes.readableBytes
        guard let body = bodies.first else { return send(buffered, buffered[slice: 0..<0], buffered[slice: 0..<0]) }
        let end = bodies.count > 1 ? bodies[1].position : buffered.count
        return body.bytes.withUnsafeBytes { large in
            send(
                buffered[slice: 0..<body.position], large[slice: body.sent..<large.count],
                buffered[slice: body.position..<end])
        }
    }

    /// Removes the first `count` bytes, which have been sent.
    @inline(__always)
    mutating func consume(_ count: Int) {
        if bodies.isEmpty { bytes.consume(count) } else { consumeWithBodies(count) }
    }

    private mutating func consumeWithBodies(_ count: Int) {
        precondition(count >= 0 && count <= self.count)
        var rest = count
        while rest > 0 {
            let before = bodies.first?.position ?? bytes.count
            if before > 0 {
                let taken = min(rest, before)
                bytes.consume(taken)
                for index in bodies.indices { bodies[index].position -= taken }
                rest -= taken
            } else {
                let taken = min(rest, bodies[0].bytes.count - bodies[0].sent)
                bodies[0].sent += taken
                bodyBytes -= taken
                rest -= taken
                if bodies[0].sent == bodies[0].bytes.count { bodies.removeFirst() }
            }
        }
    }

    /// Frees the memory of an empty queue that has grown beyond `limit` bytes.
    mutating func shrink(to limit: Int) {
        bytes.shrink(to: limit)
    }
}
