import ArgumentParser
import FoundationEssentials
import Glibc
import HTTPServer

/// Checks the health of a running server; for container health checks.
struct HealthCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "health", abstract: "Checks the health of a running server; exit status 1 if it is not healthy.")

    @Option(
        help: .init(
            "URL of the server's health check (default: /health at HOLDFAST_LISTEN, or at 127.0.0.1:8080).",
            valueName: "url"))
    var url: String?

    @Option(help: .init("How long to wait for the response (default: 3s).", valueName: "time"))
    var timeout: String?

    /// The settings of this command. The server does not warn of them as unknown, because a health check shares the
    /// environment of the container.
    static let settings = ["url", "timeout"]

    func run() throws {
        let settings = Settings(environment: ProcessInfo.processInfo.environment)
        var given: String?
        settings.apply(url, "url", to: &given)
        let address = try given ?? Self.defaultAddress(settings) + "/health"
        var period = Period(seconds: 3)
        try settings.apply(timeout, "timeout", to: &period)
        guard let target = URL(string: address), target.scheme == "http", let host = target.host else {
            throw Failure("--url must be an http URL; got '\(address)'")
        }
        let path = target.path.isEmpty ? "/health" : target.path
        let response: HTTPProbe.Response
        do {
            response = try HTTPProbe(host: host, port: target.port ?? 80, seconds: period.seconds).get(path)
        } catch {
            throw Failure("\(address) does not respond: \(error)")
        }
        guard response.status == 200 else { throw Failure("\(address) responds \(response.status): \(response.body)") }
        print(response.body, terminator: response.body.last?.isNewline == true ? "" : "\n")
    }

    /// Returns the address of a server that is configured by the same environment.
    static func defaultAddress(_ settings: Settings) throws -> String {
        var listen = ServeConfiguration().http.address
        settings.apply(nil, "listen", to: &listen)
        let address = try SocketAddress(resolving: listen)
        let port = address.port
        guard port != 0 else {
            throw Failure(
                "--url must say where the server is: HOLDFAST_LISTEN is '\(listen)', for a port that the kernel chooses"
            )
        }
        let reachable =
            switch "\(address)" {
            case "0.0.0.0:\(port)": "127.0.0.1:\(port)"
            case "[::]:\(port)": "[::1]:\(port)"
            default: "\(address)"
            }
        return "http://\(reachable)"
    }
}

/// Makes one small blocking request, so that health checks need neither curl in the container nor an HTTP library.
struct HTTPProbe {
    struct Response {
        let status: Int
        let body: String
    }

    let host: String
    let port: Int
    /// The time limit for the whole exchange.
    let seconds: Double

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
            guard count > 0 else { throw Self.failure("send") }
            rest = rest.dropFirst(count)
        }
        let text = String(decoding: try receiveAll(descriptor, until: deadline), as: UTF8.self)
        guard text.hasPrefix("HTTP/1."), let status = Int(text.dropFirst(9).prefix(3)) else {
            throw Failure("the response is not HTTP")
        }
        let body = text.firstRange(of: "\r\n\r\n").map { String(text[$0.upperBound...]) } ?? ""
        return Response(status: status, body: body)
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

    /// Limits the next call on the socket to the time until the deadline.
    private func limit(_ descriptor: Int32, until deadline: ContinuousClock.Instant) throws(Failure) {
        let rest = (deadline - ContinuousClock.now).components
        let microseconds = rest.attoseconds / 1_000_000_000_000
        // A timeout of 0 would mean no limit.
        guard rest.seconds > 0 || rest.seconds == 0 && microseconds > 0 else { throw Failure("no response in time") }
        var limit = timeval(tv_sec: Int(rest.seconds), tv_usec: Int(microseconds))
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &limit, socklen_t(MemoryLayout<timeval>.size))
        }
    }

    private func receiveAll(
        _ descriptor: Int32, until deadline: ContinuousClock.Instant
    ) throws(Failure) -> [UInt8] {
        var response: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while response.count < 64 * 1024 {
            try limit(descriptor, until: deadline)
            let count = recv(descriptor, &buffer, buffer.count, 0)
            if count == 0 { break }
            guard count > 0 else { throw Self.failure("recv") }
            response += buffer[..<count]
        }
        return response
    }

    private static func failure(_ call: String) -> Failure {
        let code = errno
        return Failure(
            code == EAGAIN || code == EINPROGRESS
                ? "no response in time" : "\(call): \(String(cString: strerror(code)))")
    }
}
