import Foundation
import Glibc
import Synchronization

/// Passes connections on to another port of this host, as well as a network that tests choose does.
public final class FaultyProxy: Sendable {
    public enum Fault: Sendable, Equatable {
        case none
        /// Connections are refused, and open ones are cut.
        case refuses
        /// Nothing that is sent arrives, and nobody is told.
        case swallows
        /// What is sent arrives later.
        case delays(milliseconds: UInt32)
        /// A connection is cut after this many more bytes of responses, again and again.
        case cuts(after: Int)
        /// Of what is sent, 5% is late, as if packets were lost and sent again; now and then a connection is cut, and now
        /// and then one passes nothing on any more in one direction.
        case disturbs
    }

    public struct CannotListen: Error {}

    private struct State {
        var target: UInt16
        var fault = Fault.none
        var isClosed = false
        /// Sockets of open connections, in pairs.
        var open: [Int32] = []
        /// The bytes of responses since the last cut.
        var bytes = 0
        /// How often connections were forgotten.
        var generation = 0

        /// With the lock held, so that no socket is closed meanwhile.
        func cut() {
            for descriptor in open { shutdown(descriptor, Int32(SHUT_RDWR)) }
        }
    }

    public let port: UInt16
    private let listener: Int32
    private let state: Mutex<State>

    /// - Parameter target: the port of the server.
    public init(to target: UInt16) throws {
        state = Mutex(State(target: target))
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = Self.loopback(0)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isListening = withUnsafeMutablePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, length) == 0 && listen(listener, 128) == 0 && getsockname(listener, $0, &length) == 0
            }
        }
        guard isListening else { throw CannotListen() }
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

    deinit {
        close()
    }

    /// The fault from now on. Open connections go on with it.
    public var fault: Fault {
        get { state.withLock(\.fault) }
        set {
            state.withLock { state in
                (state.fault, state.bytes) = (newValue, 0)
                if newValue == .refuses { state.cut() }
            }
        }
    }

    /// The number of connections that are open.
    public var connections: Int { state.withLock { $0.open.count / 2 } }

    /// Where connections lead from now on.
    public func lead(to port: UInt16) {
        state.withLock { $0.target = port }
    }

    /// Lets nothing through any more on the connections that there are, and tells neither end: as when a firewall forgets
    /// them. New ones work.
    public func forgetConnections() {
        state.withLock { $0.generation += 1 }
    }

    public func close() {
        state.withLock { state in
            // The listener is closed afterwards; its number may then be that of something else.
            guard !state.isClosed else { return }
            state.isClosed = true
            state.cut()
            shutdown(listener, Int32(SHUT_RDWR))
        }
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
        let (target, generation) = state.withLock { ($0.target, $0.generation) }
        var address = Self.loopback(target)
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
        let ended = Ended()
        for (source, drain, isResponse) in [(client, server, false), (server, client, true)] {
            Thread.detachNewThread { [self] in
                if pass(from: source, to: drain, isResponse: isResponse, generation) {
                    shutdown(source, Int32(SHUT_RDWR))
                    shutdown(drain, Int32(SHUT_RDWR))
                }
                guard ended.isLast() else { return }
                state.withLock { $0.open.removeAll { $0 == client || $0 == server } }
                Glibc.close(client)
                Glibc.close(server)
            }
        }
    }

    /// Counts the directions of a connection that have ended.
    private final class Ended: Sendable {
        private let count = Atomic<Int>(0)

        func isLast() -> Bool { count.add(1, ordering: .sequentiallyConsistent).newValue == 2 }
    }

    private enum Fate {
        case arrives, vanishes
        /// - Parameter part: this many bytes arrive before.
        case isCut(part: Int)
    }

    /// Passes on what is sent in one direction of a connection.
    ///
    /// - Parameter generation: that of the connection.
    /// - Returns: whether the ends are to be told that the connection has ended.
    private func pass(from source: Int32, to drain: Int32, isResponse: Bool, _ generation: Int) -> Bool {
        var buffer = [UInt8](repeating: 0, count: 16_384)
        var isForgotten = false
        while true {
            let count = recv(source, &buffer, buffer.count, 0)
            if state.withLock({ $0.generation != generation }) { isForgotten = true }
            guard count > 0 else { return !isForgotten }
            if isForgotten { continue }
            switch fate(of: count, isResponse: isResponse, &isForgotten) {
            case .vanishes: continue
            case .isCut(let part):
                _ = send(drain, buffer, part, Int32(MSG_NOSIGNAL))
                return true
            case .arrives: break
            }
            var sent = 0
            while sent < count {
                let written = buffer[sent..<count].withUnsafeBytes {
                    send(drain, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
                }
                guard written > 0 else { return true }
                sent += written
            }
        }
    }

    private func fate(of count: Int, isResponse: Bool, _ isForgotten: inout Bool) -> Fate {
        switch fault {
        case .none: return .arrives
        case .refuses: return .isCut(part: 0)
        case .swallows: return .vanishes
        case .delays(let milliseconds): usleep(milliseconds * 1_000)
        case .cuts(let limit):
            guard isResponse else { return .arrives }
            let isOver = state.withLock { state in
                state.bytes += count
                guard state.bytes > limit else { return false }
                state.bytes = 0
                return true
            }
            return isOver ? .isCut(part: count / 2) : .arrives
        case .disturbs:
            switch Int.random(in: 0..<1_000) {
            case 0..<2: return .isCut(part: 0)
            case 2..<4:
                isForgotten = true
                return .vanishes
            // The first and the second retransmission of TCP.
            case 4..<54: usleep([200_000, 600_000].randomElement() ?? 0)
            default: break
            }
        }
        return .arrives
    }
}
