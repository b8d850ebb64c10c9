import Glibc

/// Makes one small blocking request, so that a health check needs neither curl in the container nor an HTTP library.
struct HTTPProbe {
    struct Answer {
        let status: Int
        let body: String
    }

    let host: String
    let port: Int
    /// For the whole exchange.
    let seconds: Double

    /// - Throws: ``Failure`` when the server cannot be reached, is too slow, or answers with something else than HTTP.
    func get(_ path: String) throws(Failure) -> Answer {
        let deadline = ContinuousClock.now + .seconds(seconds)
        let descriptor = try connect(until: deadline)
        defer { close(descriptor) }
        let bracketed = host.contains(":") ? "[\(host)]" : host
        let request = Array("GET \(path) HTTP/1.0\r\nHost: \(bracketed):\(port)\r\n\r\n".utf8)
        guard send(descriptor, request, request.count, Int32(MSG_NOSIGNAL)) == request.count else {
            throw Self.failure("send")
        }
        let text = String(decoding: try receiveAll(descriptor, until: deadline), as: UTF8.self)
        guard text.hasPrefix("HTTP/1."), let status = Int(text.dropFirst(9).prefix(3)) else {
            throw Failure("the answer is not HTTP")
        }
        let body = text.firstRange(of: "\r\n\r\n").map { String(text[$0.upperBound...]) } ?? ""
        return Answer(status: status, body: body)
    }

    private func connect(until deadline: ContinuousClock.Instant) throws(Failure) -> Int32 {
        var hints = addrinfo()
        hints.ai_protocol = Int32(IPPROTO_TCP)
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, String(port), &hints, &list)
        guard code == 0 else { throw Failure(String(cString: gai_strerror(code))) }
        defer { freeaddrinfo(list) }
        var last = Failure("there is no such host")
        var next = list
        while let address = next?.pointee {
            next = address.ai_next
            let descriptor = socket(address.ai_family, address.ai_socktype, address.ai_protocol)
            guard descriptor >= 0 else { throw Self.failure("socket") }
            try limit(descriptor, until: deadline)
            if Glibc.connect(descriptor, address.ai_addr, address.ai_addrlen) == 0 { return descriptor }
            last = Self.failure("connect")
            close(descriptor)
        }
        throw last
    }

    /// The next call on the socket may take until the deadline.
    private func limit(_ descriptor: Int32, until deadline: ContinuousClock.Instant) throws(Failure) {
        let rest = (deadline - ContinuousClock.now).components
        let microseconds = rest.attoseconds / 1_000_000_000_000
        // A limit of 0 would be none.
        guard rest.seconds > 0 || rest.seconds == 0 && microseconds > 0 else { throw Failure("no answer in time") }
        var limit = timeval(tv_sec: Int(rest.seconds), tv_usec: Int(microseconds))
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &limit, socklen_t(MemoryLayout<timeval>.size))
        }
    }

    private func receiveAll(
        _ descriptor: Int32, until deadline: ContinuousClock.Instant
    ) throws(Failure) -> [UInt8] {
        var answer: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while answer.count < 64 * 1024 {
            try limit(descriptor, until: deadline)
            let count = recv(descriptor, &buffer, buffer.count, 0)
            if count == 0 { break }
            guard count > 0 else { throw Self.failure("recv") }
            answer += buffer[..<count]
        }
        return answer
    }

    private static func failure(_ call: String) -> Failure {
        let code = errno
        return Failure(code == EAGAIN || code == EINPROGRESS ? "no answer in time" : "\(call): \(String(cString: strerror(code)))")
    }
}
