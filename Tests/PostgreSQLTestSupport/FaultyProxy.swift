import Foundation
import Glibc
import Synchronization

/// Passes on connections to a server, as a network does that delays, closes and forgets them. It ends with the process.
public final class FaultyProxy: Sendable {
    public let port: UInt16
    private let listener: Int32
    private let server: UInt16
    /// The number of times that connections were cut; one made before the last time passes nothing on.
    private let cuts = Atomic<Int>(0)
    private let disturbs = Atomic<Bool>(false)

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

    /// Lets nothing through any more on the connections that there are, and tells neither end: as when a firewall forgets
    /// them. New ones work.
    public func cut() {
        cuts.add(1, ordering: .sequentiallyConsistent)
    }

    /// Begins or ends to disturb: of what passes, 5% is late, as if packets were lost and sent again, now and then a
    /// connection is closed, and now and then one passes nothing on any more in one direction.
    public func disturb(_ disturbs: Bool) {
        self.disturbs.store(disturbs, ordering: .sequentiallyConsistent)
    }

    private enum Disturbance {
        case delay(microseconds: UInt32)
        case close, forget

        static func random() -> Self? {
            switch Int.random(in: 0..<1_000) {
            case 0..<2: .close
            case 2..<4: .forget
            // The first and the second retransmission of TCP.
            case 4..<54: .delay(microseconds: [200_000, 600_000].randomElement() ?? 0)
            default: nil
            }
        }
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
            let disturbance = disturbs.load(ordering: .relaxed) ? Disturbance.random() : nil
            if case .forget = disturbance { return }
            if case .delay(let microseconds) = disturbance { usleep(microseconds) }
            var isClosed = count <= 0
            if case .close = disturbance { isClosed = true }
            guard !isClosed else {
                shutdown(target, Int32(SHUT_RDWR))
                shutdown(source, Int32(SHUT_RDWR))
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
