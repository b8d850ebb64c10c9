internal import CSystem
import Glibc

/// A socket that accepts connections. Several share one address with `SO_REUSEPORT`: one for each event loop.
struct ListeningSocket {
    let socket: Socket

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

    /// Fails if another process listens on the address, be it with `SO_REUSEPORT`: two servers that share a port by
    /// mistake would each answer half of the requests.
    static func assureFree(_ address: SocketAddress) throws(SystemError) {
        try bound(to: address, shared: false).close()
    }

    /// The address it is bound to, with the port that the kernel chose.
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

    /// Takes one waiting connection; `nil` when there is none.
    func accept() throws(SystemError) -> (socket: Socket, peer: IPAddress)? {
        var storage = sockaddr_storage()
        let outcome = try SystemCall.attempt("accept") {
            Int(csystem_accept(socket.descriptor, &storage, UInt32(MemoryLayout<sockaddr_storage>.size)))
        }
        guard case .done(let descriptor) = outcome else { return nil }
        let accepted = Socket(descriptor: Int32(truncatingIfNeeded: descriptor))
        // A failure here leaves Nagle's algorithm on: slower, not wrong.
        try? accepted.set(Int32(IPPROTO_TCP), TCP_NODELAY, to: 1)
        return (accepted, IPAddress(storage) ?? .unspecified)
    }
}
