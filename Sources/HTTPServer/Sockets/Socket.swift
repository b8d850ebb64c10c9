internal import CSystem
import Glibc

/// A non-blocking stream socket. The owner must close it.
struct Socket {
    let descriptor: Int32

    /// The maximum number of bytes that one system call receives into the buffer of the event loop.
    private static let loopBufferBytes = 64 * 1024
    /// The minimum number of bytes for which the input gets memory before a system call receives more of a body.
    private static let minimumReservedBytes = 16 * 1024
    /// The maximum number of bytes of a body that one system call receives.
    private static let bodyReceiveBytes = 256 * 1024

    /// Receives the bytes that have arrived on a connection, and appends them to its input.
    ///
    /// An empty input usually gets a whole small request. The bytes are received into the buffer of the event loop and
    /// then copied, so that thousands of idle connections need no buffers of their own. An input that is not empty
    /// usually has the beginning of a large body. The rest is received directly into the input, without a copy.
    ///
    /// - Parameters:
    ///   - input: the bytes of the connection that have not been handled.
    ///   - loopBuffer: an empty buffer, which all connections of an event loop use in turn. It is empty again
    ///     afterwards.
    /// - Returns: the number of received bytes, which is 0 at the end of the stream; or that none have arrived.
    func receive(into input: inout ByteBuffer, through loopBuffer: inout ByteBuffer) throws(SystemError)
        -> SystemCall.Outcome
    {
        guard input.isEmpty else {
            input.reserve(max(Self.minimumReservedBytes, min(input.count, Self.bodyReceiveBytes)))
            return try receive(into: &input, atMost: Self.bodyReceiveBytes)
        }
        let outcome = try receive(into: &loopBuffer, atMost: Self.loopBufferBytes)
        input.append(loopBuffer.readableBytes)
        loopBuffer.consume(loopBuffer.count)
        return outcome
    }

    /// Receives at most `limit` bytes, as far as the buffer has capacity, and appends them to the buffer.
    private func receive(into buffer: inout ByteBuffer, atMost limit: Int) throws(SystemError) -> SystemCall.Outcome {
        let descriptor = descriptor
        let outcome = try SystemCall.attempt("recv") {
            buffer.withWritableBytes { free in
                recv(descriptor, free.baseAddress, min(free.count, limit), 0)
            }
        }
        if case .done(let count) = outcome { buffer.commit(count) }
        return outcome
    }

    /// Sends as much of the output as the kernel takes, and removes the sent bytes from the output.
    ///
    /// - Returns: the number of sent bytes; or that the kernel takes none now.
    func send(_ output: inout OutputQueue) throws(SystemError) -> SystemCall.Outcome {
        var sent = 0
        repeat {
            let (outcome, offered) = try sendNextPieces(output)
            guard case .done(let count) = outcome else { return sent > 0 ? .done(sent) : outcome }
            output.consume(count)
            sent += count
            if count < offered { break }
        } while !output.isEmpty
        return .done(sent)
    }

    /// Sends the next pieces of the output with one system call.
    ///
    /// - Returns: the outcome, and the number of bytes that were offered to the kernel. If the kernel takes fewer, its
    ///   buffer is full.
    private func sendNextPieces(
        _ output: borrowing OutputQueue
    ) throws(SystemError) -> (outcome: SystemCall.Outcome, offered: Int) {
        let descriptor = descriptor
        var offered = 0
        let outcome = try SystemCall.attempt("send") {
            output.withNextPieces { before, body, after in
                offered = before.count + body.count + after.count
                // Without a large body, all bytes are in the first piece.
                if body.isEmpty { return csystem_send(descriptor, before.baseAddress, UInt(before.count)) }
                return Self.send([before, body, after], to: descriptor)
            }
        }
        return (outcome, offered)
    }

    /// Sends several pieces with one system call.
    private static func send(_ pieces: [UnsafeRawBufferPointer], to descriptor: Int32) -> Int {
        var vectors = pieces.map {
            iovec(iov_base: UnsafeMutableRawPointer(mutating: $0.baseAddress), iov_len: $0.count)
        }
        return vectors.withUnsafeMutableBufferPointer { vectors in
            var message = msghdr()
            message.msg_iov = vectors.baseAddress
            message.msg_iovlen = vectors.count
            return sendmsg(descriptor, &message, Int32(MSG_NOSIGNAL))
        }
    }

    /// Refuses a connection beyond the limit: sends the response, as far as the kernel takes it at once, and closes the
    /// socket.
    func refuse(with response: inout OutputQueue) {
        _ = try? send(&response)
        finishSending()
        // Unread bytes would make the kernel reset the connection before the peer has read the response.
        withUnsafeTemporaryAllocation(byteCount: 16 * 1024, alignment: 1) { bytes in
            _ = recv(descriptor, bytes.baseAddress, bytes.count, 0)
        }
        close()
    }

    /// Shuts down the sending side.
    func finishSending() {
        _ = shutdown(descriptor, Int32(SHUT_WR))
    }

    func close() {
        _ = Glibc.close(descriptor)
    }

    func set(_ level: Int32, _ option: Int32, to value: Int32) throws(SystemError) {
        var value = value
        try SystemCall.check("setsockopt") {
            setsockopt(descriptor, level, option, &value, socklen_t(MemoryLayout<Int32>.size))
        }
    }
}

/// A socket that accepts connections. Each event loop has one. All of them have the same address, by `SO_REUSEPORT`, so
/// that the kernel distributes new connections over the event loops.
struct ListeningSocket {
    let socket: Socket

    init(sharing address: SocketAddress, backlog: Int32) throws(SystemError) {
        let socket = try Self.bound(to: address, shared: true)
        do throws(SystemError) {
            try SystemCall.check("listen") { listen(socket.descriptor, backlog) }
        } catch {
            socket.close()
            throw error
        }
        self.socket = socket
    }

    /// Checks that no other process listens on the address, not even with `SO_REUSEPORT`. Otherwise two servers that
    /// were started with the same port by mistake would each get half of the requests.
    ///
    /// - Throws: ``SystemError`` with `EADDRINUSE` if another process listens on the address.
    static func requireFree(_ address: SocketAddress) throws(SystemError) {
        try bound(to: address, shared: false).close()
    }

    /// Returns a socket that is bound to an address.
    ///
    /// - Parameter shared: whether other sockets of this host may be bound to the same address.
    private static func bound(to address: SocketAddress, shared: Bool) throws(SystemError) -> Socket {
        let descriptor = try SystemCall.check("socket") { csystem_stream_socket(address.family) }
        let socket = Socket(descriptor: descriptor)
        do throws(SystemError) {
            try socket.set(SOL_SOCKET, SO_REUSEADDR, to: 1)
            if shared { try socket.set(SOL_SOCKET, SO_REUSEPORT, to: 1) }
            try SystemCall.check("bind") { address.withSockaddr { Glibc.bind(descriptor, $0, $1) } }
        } catch {
            socket.close()
            throw error
        }
        return socket
    }

    /// Returns the bound address, with the port that the kernel chose.
    func address() throws(SystemError) -> SocketAddress {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        try SystemCall.check("getsockname") {
            withUnsafeMutableBytes(of: &storage) { bytes in
                getsockname(socket.descriptor, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
            }
        }
        return SocketAddress(storage: storage, length: length)
    }

    /// Accepts one waiting connection; `nil` if there is none.
    func accept() throws(SystemError) -> (socket: Socket, peer: IPAddress)? {
        var storage = sockaddr_storage()
        let outcome = try SystemCall.attempt("accept") {
            Int(csystem_accept(socket.descriptor, &storage, UInt32(MemoryLayout<sockaddr_storage>.size)))
        }
        guard case .done(let descriptor) = outcome else { return nil }
        let accepted = Socket(descriptor: Int32(truncatingIfNeeded: descriptor))
        // A failure leaves Nagle's algorithm on, which is slower but not wrong.
        try? accepted.set(Int32(IPPROTO_TCP), TCP_NODELAY, to: 1)
        return (accepted, IPAddress(storage) ?? .unspecified)
    }
}
