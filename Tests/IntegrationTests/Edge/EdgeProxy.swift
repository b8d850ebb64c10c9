import APITestSupport
import Foundation
import Glibc
import ProcessTestSupport
import Synchronization

/// Passes connections on to another port, as well as a network that tests choose does.
final class EdgeProxy: Sendable {
    enum Fault: Sendable, Equatable {
        case none
        /// Connections are refused, and open ones are cut.
        case refuses
        /// Nothing that is sent arrives, and nobody is told.
        case swallows
        /// What is sent arrives later.
        case delays(milliseconds: UInt32)
        /// A connection is cut after this many more bytes of responses, again and again.
        case cuts(after: Int)
    }

    private struct State {
        var fault = Fault.none
        var isClosed = false
        /// Sockets of open connections, in pairs.
        var open: [Int32] = []
        var bytes = 0
    }

    let port: UInt16
    private let target: Mutex<UInt16>
    private let listener: Int32
    private let state = Mutex(State())

    init(to target: UInt16) throws {
        self.target = Mutex(target)
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = Self.loopback(0)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isListening = withUnsafeMutablePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, length) == 0 && listen(listener, 128) == 0 && getsockname(listener, $0, &length) == 0
            }
        }
        guard isListening else { throw TestFailure("the proxy cannot listen") }
        self.listener = listener
        port = UInt16(bigEndian: address.sin_port)
        Thread.detachNewThread { [weak self] in
            while true {
                let client = accept(listener, nil, nil)
                guard client >= 0, let self, !self.state.withLock(\.isClosed) else { break }
                self.serve(client)
            }
            Glibc.close(listener)
        }
    }

    /// The fault from now on. Open connections go on with it.
    var fault: Fault {
        get { state.withLock(\.fault) }
        set {
            let cut = state.withLock { state -> [Int32] in
                state.fault = newValue
                state.bytes = 0
                return newValue == .refuses ? state.open : []
            }
            for descriptor in cut { shutdown(descriptor, Int32(SHUT_RDWR)) }
        }
    }

    /// Where connections lead from now on.
    func lead(to port: UInt16) {
        target.withLock { $0 = port }
    }

    func close() {
        let open = state.withLock { state in
            state.isClosed = true
            return state.open
        }
        for descriptor in open + [listener] { shutdown(descriptor, Int32(SHUT_RDWR)) }
    }

    private static func loopback(_ port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        return address
    }

    private func serve(_ client: Int32) {
        let server = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = Self.loopback(target.withLock { $0 })
        let isConnected =
            fault != .refuses
            && withUnsafePointer(to: &address) { address in
                address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(server, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
                }
            }
        guard isConnected else {
            // A reset instead of an end.
            var option = linger(l_onoff: 1, l_linger: 0)
            setsockopt(client, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
            Glibc.close(client)
            Glibc.close(server)
            return
        }
        state.withLock { $0.open += [client, server] }
        let ends = Atomic2()
        for (source, drain, isResponse) in [(client, server, false), (server, client, true)] {
            Thread.detachNewThread { [self] in
                pass(from: source, to: drain, isResponse: isResponse)
                shutdown(source, Int32(SHUT_RDWR))
                shutdown(drain, Int32(SHUT_RDWR))
                guard ends.isLast() else { return }
                state.withLock { $0.open.removeAll { $0 == client || $0 == server } }
                Glibc.close(client)
                Glibc.close(server)
            }
        }
    }

    private final class Atomic2: Sendable {
        private let count = Mutex(0)

        func isLast() -> Bool {
            count.withLock { count in
                count += 1
                return count == 2
            }
        }
    }

    private func pass(from source: Int32, to drain: Int32, isResponse: Bool) {
        var buffer = [UInt8](repeating: 0, count: 16_384)
        while true {
            let count = recv(source, &buffer, buffer.count, 0)
            guard count > 0 else { return }
            switch fault {
            case .none: break
            case .refuses: return
            case .swallows: continue
            case .delays(let milliseconds): usleep(milliseconds * 1_000)
            case .cuts(let limit):
                guard isResponse else { break }
                let isOver = state.withLock { state in
                    state.bytes += count
                    guard state.bytes > limit else { return false }
                    state.bytes = 0
                    return true
                }
                if isOver {
                    _ = send(drain, buffer, count / 2, Int32(MSG_NOSIGNAL))
                    return
                }
            }
            var sent = 0
            while sent < count {
                let written = buffer[sent..<count].withUnsafeBytes {
                    send(drain, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
                }
                guard written > 0 else { return }
                sent += written
            }
        }
    }
}
