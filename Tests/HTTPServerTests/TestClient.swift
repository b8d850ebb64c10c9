import Glibc

@testable import HTTPServer

/// A blocking client on a raw socket, which can misbehave. Calls fail after a minute.
final class TestClient {
    struct ReceivedResponse: Equatable {
        var status: Int
        var head: String
        var body: String
    }

    private var descriptor: Int32
    private var received: [UInt8] = []

    /// - Parameter receiveBuffer: size of the kernel's receive buffer, small for a slow reader.
    init(port: UInt16, receiveBuffer: Int32? = nil) throws(SystemError) {
        descriptor = try SystemCall.check("socket") { Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0) }
        let socket = Socket(descriptor: descriptor)
        if let receiveBuffer { try socket.set(SOL_SOCKET, SO_RCVBUF, to: receiveBuffer) }
        try socket.set(Int32(IPPROTO_TCP), TCP_NODELAY, to: 1)
        var timeout = timeval(tv_sec: 60, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let descriptor = descriptor
        try SystemCall.check("connect") {
            withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
        }
    }

    deinit {
        close()
    }

    func send(_ bytes: [UInt8]) throws(SystemError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count >= 0 else { throw SystemError(call: "send", code: errno) }
            rest = rest.dropFirst(count)
        }
    }

    func send(_ text: String) throws(SystemError) {
        try send(Array(text.utf8))
    }

    /// Reads the next response. Without a length it has no body.
    func response() throws(SystemError) -> ReceivedResponse {
        while true {
            if let end = received.firstRange(of: Array("\r\n\r\n".utf8)) {
                let head = String(decoding: received[..<end.upperBound], as: UTF8.self)
                let length = Int(Self.field("Content-Length", of: head) ?? "0") ?? 0
                if received.count >= end.upperBound + length {
                    let body = String(decoding: received[end.upperBound..<end.upperBound + length], as: UTF8.self)
                    received.removeFirst(end.upperBound + length)
                    return ReceivedResponse(status: Int(head.dropFirst(9).prefix(3)) ?? 0, head: head, body: body)
                }
            }
            guard try receive() else { throw SystemError(call: "recv", code: EPIPE) }
        }
    }

    /// Reads to the end of the stream.
    func rest() throws(SystemError) -> String {
        while try receive() {}
        defer { received = [] }
        return String(decoding: received, as: UTF8.self)
    }

    private func receive() throws(SystemError) -> Bool {
        let count = withUnsafeTemporaryAllocation(byteCount: 64 * 1024, alignment: 1) { buffer in
            let count = recv(descriptor, buffer.baseAddress, buffer.count, 0)
            if count > 0 { received += buffer[..<count] }
            return count
        }
        guard count >= 0 else { throw SystemError(call: "recv", code: errno) }
        return count > 0
    }

    func finishSending() {
        _ = shutdown(descriptor, Int32(SHUT_WR))
    }

    func close() {
        if descriptor >= 0 { _ = Glibc.close(descriptor) }
        descriptor = -1
    }

    /// Closes with a reset instead of an orderly end.
    func reset() {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
        close()
    }

    static func field(_ name: String, of head: String) -> String? {
        let start = "\(name): "
        return head.components(separatedBy: "\r\n").first { $0.hasPrefix(start) }.map {
            String($0.dropFirst(start.count))
        }
    }
}
