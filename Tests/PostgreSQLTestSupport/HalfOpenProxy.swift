import Foundation
import Glibc
import Synchronization

/// Passes on connections to a server, until they are cut without either end noticing: as when a firewall forgets them.
/// It ends with the process.
public final class HalfOpenProxy: Sendable {
    public let port: UInt16
    private let listener: Int32
    private let server: UInt16
    /// The number of times that connections were cut; one made before the last time passes nothing on.
    private let cuts = Atomic<Int>(0)

    /// - Parameter server: the port of the server.
    public init(to server: UInt16) throws {
        self.server = server
        port = try PostgreSQLServer.freePort()
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var yes: Int32 = 1
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        guard Self.withAddress(port, { bind(listener, $0, $1) }) == 0, listen(listener, 64) == 0 else {
            throw PostgreSQLServer.NotStarted(description: "the proxy cannot listen on port \(port)")
        }
        Thread.detachNewThread { [self] in
            while true {
                let client = accept(listener, nil, nil)
                guard client >= 0 else { return }
                serve(client)
            }
        }
    }

    /// Lets nothing through any more on the connections that there are. New ones work.
    public func cut() {
        cuts.add(1, ordering: .sequentiallyConsistent)
    }

    private func serve(_ client: Int32) {
        let upstream = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        guard Self.withAddress(server, { connect(upstream, $0, $1) }) == 0 else {
            close(client)
            return
        }
        let began = cuts.load(ordering: .sequentiallyConsistent)
        for (source, target) in [(client, upstream), (upstream, client)] {
            Thread.detachNewThread { [self] in pass(from: source, to: target, began: began) }
        }
    }

    /// A connection that was cut keeps its sockets, so that nobody is told.
    private func pass(from source: Int32, to target: Int32, began: Int) {
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = read(source, &buffer, buffer.count)
            guard cuts.load(ordering: .sequentiallyConsistent) == began else { return }
            guard count > 0 else {
                shutdown(target, Int32(SHUT_RDWR))
                return
            }
            var sent = 0
            while sent < count {
                let written = buffer[sent..<count].withUnsafeBytes {
                    send(target, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
                }
                guard written > 0 else { return }
                sent += written
            }
        }
    }

    private static func withAddress(_ port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }
}
