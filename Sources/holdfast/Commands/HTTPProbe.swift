import Glibc

/// Sends small blocking HTTP/1.0 requests, so that `holdfast health` and `holdfast demo` need no HTTP library, and a
/// container needs no curl.
struct HTTPProbe {
    struct Response {
        let status: Int
        let body: String
    }

    let host: String
    let port: Int
    /// The time limit in seconds for the whole exchange.
    let seconds: Double

    /// The size in bytes at which a response is cut off.
    private static let longestResponse = 64 * 1024

    /// - Throws: ``Failure`` when the server cannot be reached, is too slow, or does not respond with HTTP.
    func get(_ path: String) throws(Failure) -> Response {
        try send("GET", path)
    }

    /// Sends a request. A response of more than 64 KiB is cut off.
    ///
    /// - Throws: ``Failure`` when the server cannot be reached, is too slow, or does not respond with HTTP.
    func send(_ method: String, _ path: String, body: [UInt8]? = nil) throws(Failure) -> Response {
        let deadline = ContinuousClock.now + .seconds(seconds)
        let descriptor = try connect(until: deadline)
        defer { close(descriptor) }
        let bracketed = host.contains(":") ? "[\(host)]" : host
        let length = body.map { "Content-Length: \($0.count)\r\n" } ?? ""
        let head = "\(method) \(path) HTTP/1.0\r\nHost: \(bracketed):\(port)\r\n\(length)\r\n"
        var rest = (Array(head.utf8) + (body ?? []))[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw Self.failure("send") }
            rest = rest.dropFirst(count)
        }
        let text = String(decoding: try receiveAll(descriptor, until: deadline), as: UTF8.self)
        // A response begins with a line such as `HTTP/1.1 200 OK`, in which the status is at offset 9.
        guard text.hasPrefix("HTTP/1."), let status = Int(text.dropFirst(9).prefix(3)) else {
            throw Failure("the response is not HTTP")
        }
        let body = text.firstRange(of: "\r\n\r\n").map { String(text[$0.upperBound...]) } ?? ""
        return Response(status: status, body: body)
    }

    /// Returns a socket that is connected to one of the host's addresses.
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
            do throws(Failure) {
                try limit(descriptor, until: deadline)
            } catch {
                close(descriptor)
                throw error
            }
            if Glibc.connect(descriptor, address.ai_addr, address.ai_addrlen) == 0 { return descriptor }
            last = Self.failure("connect")
            close(descriptor)
        }
        throw last
    }

    /// Limits the next call on the socket to the time until the deadline.
    private func limit(_ descriptor: Int32, until deadline: ContinuousClock.Instant) throws(Failure) {
        let rest = (deadline - ContinuousClock.now).components
        let microseconds = rest.attoseconds / 1_000_000_000_000
        // A timeout of 0 would mean no limit.
        guard rest.seconds > 0 || (rest.seconds == 0 && microseconds > 0) else { throw Failure("no response in time") }
        var limit = timeval(tv_sec: Int(rest.seconds), tv_usec: Int(microseconds))
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &limit, socklen_t(MemoryLayout<timeval>.size))
        }
    }

    /// Reads the response up to its end, at most up to the limit.
    private func receiveAll(
        _ descriptor: Int32, until deadline: ContinuousClock.Instant
    ) throws(Failure) -> [UInt8] {
        var response: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while response.count < Self.longestResponse {
            try limit(descriptor, until: deadline)
            let count = recv(descriptor, &buffer, buffer.count, 0)
            if count == 0 { break }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw Self.failure("recv") }
            response += buffer[..<count]
        }
        return response
    }

    /// Describes the error of the system call that has just failed.
    private static func failure(_ call: String) -> Failure {
        let code = errno
        // When the time limit of a socket is over, `send` and `recv` fail with EAGAIN, and `connect` with EINPROGRESS.
        return Failure(
            code == EAGAIN || code == EINPROGRESS
                ? "no response in time" : "\(call): \(String(cString: strerror(code)))")
    }
}
