import Glibc
import ProcessTestSupport

/// A blocking HTTP client on a raw socket. It can send any bytes.
// Safe: a test that uses one client on two threads only sends on one of them and only receives on the other.
public final class HTTPClient: @unchecked Sendable {
    private let descriptor: Int32
    private var received: [UInt8] = []
    private var isAtEnd = false
    /// Whether the peer ended the connection by a reset.
    public private(set) var wasReset = false
    /// Whether a response has begun to arrive and has not been read to its end.
    public private(set) var isWithinResponse = false

    /// - Parameters:
    ///   - seconds: the longest time that one call may block.
    ///   - receiveBuffer: the size of the kernel's receive buffer in bytes; `nil` for its default.
    public init(port: UInt16, seconds: Int = 60, receiveBuffer: Int32? = nil) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw Self.failure("socket") }
        var limit = timeval(tv_sec: seconds, tv_usec: 0)
        var one: Int32 = 1
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &limit, socklen_t(MemoryLayout<timeval>.size))
        }
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<Int32>.size))
        if var receiveBuffer {
            setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, socklen_t(MemoryLayout<Int32>.size))
        }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let code = withUnsafeBytes(of: &address) { bytes in
            connect(descriptor, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t(bytes.count))
        }
        // All properties are set, so `deinit` closes the socket.
        guard code == 0 else { throw Self.failure("connect") }
    }

    deinit {
        close(descriptor)
    }

    /// Sends a request and reads its response.
    @discardableResult
    public func request(
        _ method: String, _ target: String, _ body: String? = nil, token: String? = nil, fields: [String] = []
    ) throws -> TestResponse {
        try send(Self.head(method, target, body, token: token, fields: fields))
        return try receive(isHead: method == "HEAD")
    }

    /// Returns a request as it is sent.
    public static func head(
        _ method: String, _ target: String, _ body: String? = nil, token: String? = nil, fields: [String] = []
    ) -> String {
        let request = TestRequest(method, target, body, token: token, fields: fields)
        return String(decoding: request.encoded(), as: UTF8.self)
    }

    public func send(_ text: String) throws {
        try send(Array(text.utf8))
    }

    public func send(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { bytes in
                Glibc.send(descriptor, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL))
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                wasReset = errno == ECONNRESET || errno == EPIPE
                throw Self.failure("send")
            }
            rest = rest.dropFirst(count)
        }
    }

    /// Sends until the peer has read nothing for 100 ms.
    ///
    /// - Returns: the number of bytes sent.
    @discardableResult
    public func sendWhatFits(_ bytes: [UInt8]) -> Int {
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes { bytes in
                Glibc.send(descriptor, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
            }
            if count > 0 {
                sent += count
            } else {
                var wait = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                guard errno == EAGAIN, poll(&wait, 1, 100) > 0 else { return sent }
            }
        }
        return sent
    }

    /// Makes `deinit` reset the connection, as a crash does.
    public func resetAtEnd() {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
    }

    /// Reads one response, whatever marks its end.
    public func receive(isHead: Bool = false) throws -> TestResponse {
        let head = try receiveHead()
        let (status, fields) = (head.status, head.fields)
        func value(_ name: String) -> String? { head.field(name) }
        let body: [UInt8]
        if isHead || status == 204 || status == 304 || status < 200 {
            body = []
        } else if value("transfer-encoding") == "chunked" {
            body = try receiveChunks()
        } else if let length = value("content-length").flatMap({ Int($0) }) {
            body = try receive(count: length)
        } else {
            body = try receiveToEnd()
        }
        isWithinResponse = false
        return TestResponse(status: status, fields: fields, body: body)
    }

    /// Reads the head of a response whose body is read by ``receiveChunk()``.
    public func receiveHead() throws -> TestResponse {
        guard let line = try receiveLine() else {
            isWithinResponse = !received.isEmpty
            throw TestFailure("the connection ended before a response")
        }
        isWithinResponse = true
        let words = line.split(separator: " ", maxSplits: 2)
        guard words.count >= 2, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]) else {
            throw TestFailure("not a status line: \(line)")
        }
        return TestResponse(status: status, fields: try receiveFields())
    }

    /// Reads one chunk of a body. Returns `nil` at the end of the body.
    public func receiveChunk() throws -> String? {
        try receiveChunkBytes().map { String(decoding: $0, as: UTF8.self) }
    }

    private func receiveChunkBytes() throws -> [UInt8]? {
        guard let line = try receiveLine(), let length = Int(line, radix: 16) else {
            throw TestFailure("the body ended before its last chunk")
        }
        let chunk = try receive(count: length)
        guard try receiveLine() == "" else { throw TestFailure("a chunk is longer than it says") }
        return length == 0 ? nil : chunk
    }

    /// Blocks until the peer closes the connection (`true`) or sends something (`false`).
    public func isClosedByPeer() -> Bool {
        if !received.isEmpty { return false }
        return ((try? fill()) ?? false) == false && isAtEnd
    }

    /// Shuts down the sending side, as a client does after its last request.
    public func finishSending() {
        shutdown(descriptor, Int32(SHUT_WR))
    }

    private func receiveFields() throws -> [(name: String, value: String)] {
        var fields: [(name: String, value: String)] = []
        while let line = try receiveLine(), !line.isEmpty {
            let parts = line.split(separator: ":", maxSplits: 1)
            guard parts.count == 2 else { throw TestFailure("not a field line: \(line)") }
            fields.append((parts[0].lowercased(), String(parts[1].drop { $0 == " " })))
        }
        return fields
    }

    private func receiveChunks() throws -> [UInt8] {
        var body: [UInt8] = []
        while let chunk = try receiveChunkBytes() { body += chunk }
        return body
    }

    private func receiveLine() throws -> String? {
        var searched = 0
        while true {
            if let end = received[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                let line = received[..<end].filter { $0 != UInt8(ascii: "\r") }
                received.removeSubrange(...end)
                return String(decoding: line, as: UTF8.self)
            }
            searched = received.count
            guard try fill() else { return nil }
        }
    }

    private func receive(count: Int) throws -> [UInt8] {
        while received.count < count {
            guard try fill() else { throw TestFailure("the connection ended within a body") }
        }
        defer { received.removeSubrange(..<count) }
        return Array(received[..<count])
    }

    private func receiveToEnd() throws -> [UInt8] {
        while try fill() {}
        defer { received = [] }
        return received
    }

    /// Reads available bytes. Returns `false` at the end.
    private func fill() throws -> Bool {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(descriptor, &buffer, buffer.count, 0)
            if count > 0 {
                received += buffer[..<count]
                return true
            }
            if count < 0, errno == EINTR { continue }
            if count == 0 || errno == ECONNRESET {
                wasReset = count < 0
                isAtEnd = true
                return false
            }
            throw Self.failure("recv")
        }
    }

    private static func failure(_ call: String) -> TestFailure {
        TestFailure("\(call): \(String(cString: strerror(errno)))")
    }
}
