/// Responses that wait to be sent, in their order. Heads and small bodies are copied into one buffer, so that many go
/// out with one call; a large body stays the array that it came in, so that one body of many responses is in memory once.
///
/// ```
/// bytes    | head small head | small head |      position: how many of the bytes go before a body
/// bodies                     ^ large      ^ large
/// ```
struct OutputQueue: ~Copyable {
    var bytes = ByteBuffer()
    private var bodies: [Body] = []
    private var bodyBytes = 0

    private struct Body {
        let bytes: [UInt8]
        var sent = 0
        var position: Int
    }

    /// Bytes from which a body is sent from where it is; copying fewer is cheaper than another piece to send.
    static let largeBody = 16 * 1024

    var count: Int {
        @inline(__always) get { bytes.count + bodyBytes }
    }

    var isEmpty: Bool {
        @inline(__always) get { bytes.isEmpty && bodies.isEmpty }
    }

    @inline(__always)
    mutating func append(body: [UInt8]) {
        guard body.count >= Self.largeBody else { return bytes.append(body) }
        bodies.append(Body(bytes: body, position: bytes.count))
        bodyBytes += body.count
    }

    /// What is sent next, to be sent with one call: bytes, the first large body, and the bytes between it and the
    /// next one.
    ///
    /// - Parameter send: gets the pieces, which are valid during the call; those that there are none of are empty.
    func withNextPieces<Result>(
        _ send: (UnsafeRawBufferPointer, UnsafeRawBufferPointer, UnsafeRawBufferPointer) -> Result
    ) -> Result {
        let all = bytes.readableBytes
        guard let body = bodies.first else { return send(all, all[slice: 0..<0], all[slice: 0..<0]) }
        let end = bodies.count > 1 ? bodies[1].position : all.count
        return body.bytes.withUnsafeBytes { large in
            send(all[slice: 0..<body.position], large[slice: body.sent..<large.count], all[slice: body.position..<end])
        }
    }

    /// So many bytes have been sent.
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

    /// Gives back the memory of an empty queue that has grown over `limit` bytes.
    mutating func shrink(to limit: Int) {
        bytes.shrink(to: limit)
    }
}
