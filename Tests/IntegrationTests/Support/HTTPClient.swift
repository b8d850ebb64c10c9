import Glibc

/// A blocking HTTP client on a raw socket, which sends whatever bytes a test wants.
// Safe: a test that uses one on two threads only sends on one of them and only receives on the other.
final class HTTPClient: @unchecked Sendable {
    private let descriptor: Int32
    private var received: [UInt8] = []
    private var isAtEnd = false
    /// Whether the peer ended the connection by a reset.
    private(set) var wasReset = false
    /// Whether an answer has begun to come in and has not been read to its end.
    private(set) var isWithinAnswer = false

    /// - Parameters:
    ///   - seconds: how long one call may block.
    ///   - receiveBuffer: bytes that the kernel keeps for a client that does not read; `nil`: as many as it likes.
    init(port: UInt16, seconds: Int = 20, receiveBuffer: Int32? = nil) throws {
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
        // All is set up, so that `deinit` closes the socket.
        guard code == 0 else { throw Self.failure("connect") }
    }

    deinit {
        close(descriptor)
    }

    /// Sends a request and reads its answer.
    func request(
        _ method: String, _ target: String, _ body: String? = nil, token: String? = nil, fields: [String] = []
    ) throws -> Answer {
        try send(Self.head(method, target, body, token: token, fields: fields))
        return try receive(isHead: method == "HEAD")
    }

    /// A request as it is sent.
    static func head(
        _ method: String, _ target: String, _ body: String? = nil, token: String? = nil, fields: [String] = []
    ) -> String {
        var lines = ["\(method) \(target) HTTP/1.1", "Host: test"] + fields
        if let token { lines.append("Authorization: Bearer \(token)") }
        if let body { lines.append("Content-Length: \(body.utf8.count)") }
        return lines.joined(separator: "\r\n") + "\r\n\r\n" + (body ?? "")
    }

    func send(_ text: String) throws {
        try send(Array(text.utf8))
    }

    func send(_ bytes: [UInt8]) throws {
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

    /// Sends until the peer has taken nothing for a while.
    ///
    /// - Returns: the bytes that were sent.
    @discardableResult
    func sendWhatFits(_ bytes: [UInt8]) -> Int {
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

    /// Has the connection be reset when this client is let go, as that of a peer that crashes.
    func resetAtEnd() {
        var option = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
    }

    /// Reads one answer, however it says where it ends.
    func receive(isHead: Bool = false) throws -> Answer {
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
        isWithinAnswer = false
        return Answer(status: status, fields: fields, body: body)
    }

    /// Reads the head of an answer, for a body that is read by ``receiveChunk()``.
    func receiveHead() throws -> Answer {
        guard let line = try receiveLine() else {
            isWithinAnswer = !received.isEmpty
            throw TestFailure("the connection ended before an answer")
        }
        isWithinAnswer = true
        let words = line.split(separator: " ", maxSplits: 2)
        guard words.count >= 2, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]) else {
            throw TestFailure("not a status line: \(line)")
        }
        return Answer(status: status, fields: try receiveFields(), body: [])
    }

    /// Reads one chunk of a body; `nil` at the body's end.
    func receiveChunk() throws -> String? {
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

    /// Whether the peer has closed the connection and sent nothing more before; blocks until it has done either.
    func isClosedByPeer() -> Bool {
        if !received.isEmpty { return false }
        return ((try? fill()) ?? false) == false && isAtEnd
    }

    /// Ends this side's sending, as a client does that has nothing more to ask.
    func finishSending() {
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

    /// Reads what there is; `false` at the end.
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
