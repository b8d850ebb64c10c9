internal import CSystem
import Glibc

/// The descriptor of a non-blocking stream socket. Its owner closes it.
struct Socket {
    let descriptor: Int32

    /// The most bytes that one system call receives into the shared buffer.
    private static let sharedReceiveBytes = 64 * 1024
    /// The least room that is made for a body before a system call receives more of it.
    private static let minimumBodyRoom = 16 * 1024
    /// The most bytes of a body that one system call receives.
    private static let bodyReceiveBytes = 256 * 1024

    /// Receives what has arrived.
    ///
    /// Small requests on many connections share one buffer: an empty input is received through `shared` and gets only
    /// the memory that it needs. A body that takes several calls is received directly.
    ///
    /// - Returns: the number of bytes; 0 at the end of the stream.
    func receive(into input: inout ByteBuffer, through shared: inout ByteBuffer) throws(SystemError)
        -> SystemCall.Outcome
    {
        guard input.isEmpty else {
            input.reserve(max(Self.minimumBodyRoom, min(input.count, Self.bodyReceiveBytes)))
            return try receive(into: &input, atMost: Self.bodyReceiveBytes)
        }
        let outcome = try receive(into: &shared, atMost: Self.sharedReceiveBytes)
        input.append(shared.readableBytes)
        shared.consume(shared.count)
        return outcome
    }

    /// Receives into the free part of the buffer.
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

    /// Sends as many bytes as the kernel takes.
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

    /// Sends as much as one system call can.
    ///
    /// - Returns: the outcome, and the number of bytes that were offered to the kernel.
    private func sendNextPieces(
        _ output: borrowing OutputQueue
    ) throws(SystemError) -> (outcome: SystemCall.Outcome, offered: Int) {
        let descriptor = descriptor
        var offered = 0
        let outcome = try SystemCall.attempt("send") {
            output.withNextPieces { first, large, last in
                offered = first.count + large.count + last.count
                if large.isEmpty { return csystem_send(descriptor, first.baseAddress, UInt(first.count)) }
                return Self.send([first, large, last], to: descriptor)
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

    /// Closes a connection for which there is no room. Sends the response first, as far as the kernel takes it at once.
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

/// A socket that accepts connections. Each event loop has one; they share the address with `SO_REUSEPORT`.
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

    /// Throws if another process listens on the address, even with `SO_REUSEPORT`: two servers that share a port by
    /// mistake would each get half of the requests.
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
