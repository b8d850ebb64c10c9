import CHTTPClient
import Dispatch
import Glibc
import JSON
import Storage
import Synchronization
import Tracing

/// A response of the upstream with any status.
public struct UpstreamResponse: Sendable {
    public var status = 0
    /// The header fields, in the order in which they arrived.
    public var fields: [(name: String, value: String)] = []
    public var body: [UInt8] = []
}

/// A flag that ends requests and pauses.
final class Cancellation: Sendable {
    private let flag = Atomic<Bool>(false)

    var isCancelled: Bool { flag.load(ordering: .relaxed) }

    func cancel() {
        flag.store(true, ordering: .relaxed)
    }
}

/// Sends requests to the upstream with libcurl, one at a time, over connections that stay open. Only one thread at a
/// time may use it.
///
/// ``expect(_:)``, ``send(_:)`` and ``lines(of:_:)`` send a ``Request``. Each goes through three steps: a span for
/// traces (`perform`), the check that the response comes from the upstream and not from something else at its address
/// (`exchange`), and the call of libcurl (`transfer`).
final class UpstreamConnection {
    private let url: String
    /// The host of the URL, for spans.
    private let host: String
    private let port: Int
    private let identity: UpstreamIdentity
    private let connectSeconds: Double
    private let cancellation: Cancellation
    private let shouldGiveUp: @Sendable (_ receivedAt: UInt64) -> Bool
    private var client: OpaquePointer?

    /// - Parameter shouldGiveUp: called from time to time during a request, with the time when data last arrived.
    init(
        _ configuration: EdgeConfiguration, _ identity: UpstreamIdentity, _ cancellation: Cancellation,
        shouldGiveUp: @escaping @Sendable (_ receivedAt: UInt64) -> Bool = { _ in false }
    ) {
        self.shouldGiveUp = shouldGiveUp
        url = configuration.url
        (host, port) = Self.address(of: configuration.url)
        self.identity = identity
        connectSeconds = configuration.timeout
        self.cancellation = cancellation
    }

    deinit {
        if let client { http_client_close(client) }
    }

    private static func address(of url: String) -> (host: String, port: Int) {
        let authority = url.split(separator: "/", maxSplits: 2).dropFirst().first ?? ""
        guard let colon = authority.lastIndex(of: ":"), let port = Int(authority[authority.index(after: colon)...])
        else {
            return (String(authority), url.hasPrefix("https:") ? 443 : 80)
        }
        return (String(authority[..<colon]), port)
    }

    struct Request {
        var method = "GET"
        /// The path with its query.
        var path: String
        var fields: [String] = []
        /// Whether the edge's token is sent with the request.
        var hasToken = true
        var body: [UInt8]?
        /// The time limit of the whole exchange; `nil` for none.
        var seconds: Double?
        /// The maximum time without any data; `nil` for none.
        var idleSeconds: Int?
        /// Whether the request must not be sent again if a reused connection turns out to be closed.
        var isSentOnce = false
        /// The maximum size of the response body in bytes.
        var mostBytes = Int.max
        /// The spans of the traced client requests on whose behalf this request is sent.
        var spans: [Span] = []
    }

    /// Sends a request that must succeed.
    ///
    /// - Returns: a response with the status 200 to 299, or 304.
    /// - Throws: ``UpstreamError/refused(status:detail:)`` for any other status.
    func expect(_ request: Request) throws(UpstreamError) -> UpstreamResponse {
        let response = try send(request)
        guard response.status / 100 == 2 || response.status == 304 else {
            throw Self.refusal(response.status, response.body)
        }
        return response
    }

    /// Sends a request.
    ///
    /// - Returns: the response, with any status.
    func send(_ request: Request) throws(UpstreamError) -> UpstreamResponse {
        var body: [UInt8] = []
        var isTooLarge = false
        let received = Result { () throws(UpstreamError) in
            try perform(request) { _, bytes in
                isTooLarge = body.count + bytes.count > request.mostBytes
                if !isTooLarge { body.append(contentsOf: bytes) }
                return !isTooLarge
            }
        }
        if isTooLarge { throw .tooLarge(limit: request.mostBytes) }
        var response = try received.get()
        response.body = body
        return response
    }

    /// Passes the lines of a response to a function as they arrive.
    ///
    /// - Parameter line: receives a line without its line feed, and returns whether to continue.
    func lines(of request: Request, _ line: (UnsafeRawBufferPointer) -> Bool) throws(UpstreamError) {
        var rest: [UInt8] = []
        let response = try perform(request) { status, bytes in
            rest.append(contentsOf: bytes)
            return status != 200 || rest.takeLines(line)
        }
        guard response.status == 200 else { throw Self.refusal(response.status, rest) }
    }

    /// Returns the error for a response, with the detail of its problem document.
    private static func refusal(_ status: Int, _ body: [UInt8]) -> UpstreamError {
        let problem = (try? JSONParser().parse(body))?.object
        return .refused(status: status, detail: problem?["detail"]?.string ?? "it gives no reason")
    }

    /// The state that the callbacks of one exchange share.
    fileprivate struct Exchange {
        var status = 0
        var fields: [(name: String, value: String)] = []
        let cancellation: Cancellation
        /// When data last arrived, in monotonic nanoseconds.
        var receivedAt = DispatchTime.now().uptimeNanoseconds
        let shouldGiveUp: (_ receivedAt: UInt64) -> Bool
        /// Whether the request ended because ``shouldGiveUp`` said so.
        var gaveUp = false
        /// See ``UpstreamIdentity/sinceStart()``.
        let sentAt = UpstreamIdentity.sinceStart()
        let identity: UpstreamIdentity
        /// Whether the response comes from the upstream; `nil` until its header was checked, before the body is used.
        var origin: Result<Void, UpstreamError>?
        let receive: (_ status: Int, UnsafeRawBufferPointer) -> Bool
    }

    /// Performs a request. If it has spans, it runs in a child span of the first sampled one, which links to the
    /// others.
    private func perform(
        _ request: Request, _ receive: (_ status: Int, UnsafeRawBufferPointer) -> Bool
    ) throws(UpstreamError) -> UpstreamResponse {
        guard let parent = request.spans.first(where: \.context.isSampled) ?? request.spans.first else {
            return try exchange(request, receive)
        }
        let span = parent.child(.client)
        var traced = request
        traced.fields.append("Traceparent: \(span.context.traceparent)")
        if let state = span.state { traced.fields.append("Tracestate: \(state)") }
        let result = Result { () throws(UpstreamError) in try exchange(traced, receive) }
        // Paths of client requests may contain user ids, which spans must not show.
        let isOwn = request.path.hasPrefix("/edge/v1/") && !request.path.contains("?")
        var attributes: Span.Attributes = [
            ("http.request.method", .text(request.method)), ("server.address", .text(host)),
            ("server.port", .number(port)),
        ]
        if isOwn { attributes.append(("url.template", .text(request.path))) }
        var error: String?
        switch result {
        case .success(let response):
            attributes.append(("http.response.status_code", .number(response.status)))
            if response.status >= 400 { error = "\(response.status)" }
        case .failure(let failure): error = failure.kind
        }
        let links = request.spans.lazy.filter { $0 !== parent && $0.context.isSampled }.map(\.context)
        span.end(
            isOwn ? "\(request.method) \(request.path)" : request.method, attributes, error: error, links: Array(links))
        return try result.get()
    }

    /// Performs a request, and checks the origin of the response.
    private func exchange(
        _ request: Request, _ receive: (_ status: Int, UnsafeRawBufferPointer) -> Bool
    ) throws(UpstreamError) -> UpstreamResponse {
        guard !cancellation.isCancelled else { throw .closing }
        if client == nil { client = http_client_open() }
        guard let client else { throw .noResponse("an edge needs libcurl: apt-get install libcurl4") }
        var response = UpstreamResponse()
        var origin: Result<Void, UpstreamError>?
        var error = [CChar](repeating: 0, count: 256)
        withoutActuallyEscaping(receive) { receive in
            var exchange = Exchange(
                cancellation: cancellation, shouldGiveUp: shouldGiveUp, identity: identity, receive: receive)
            response.status = withUnsafeMutablePointer(to: &exchange) { exchange in
                transfer(request, client, UnsafeMutableRawPointer(exchange), &error)
            }
            if response.status > 0 { exchange.checkOrigin() }
            (response.fields, origin) = (exchange.fields, exchange.origin)
            if exchange.gaveUp { response.status = -1 }
        }
        if case .failure(let foreign) = origin { throw foreign }
        guard response.status > 0 else {
            guard !cancellation.isCancelled else { throw .closing }
            let reason = String(decoding: error.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            throw response.status < 0 ? .late(reason) : .noResponse(reason)
        }
        return response
    }

    /// Performs a request with libcurl, whose callbacks get the ``Exchange``.
    ///
    /// - Parameter error: receives the reason of a failure.
    /// - Returns: the status of the response; 0 if nothing was sent, negative if there was no complete response.
    private func transfer(
        _ request: Request, _ client: OpaquePointer, _ exchange: UnsafeMutableRawPointer, _ error: inout [CChar]
    ) -> Int {
        // An empty `Expect` prevents curl from waiting for `100 Continue` before it sends a large body.
        let all =
            request.fields + ["Expect:", "\(EdgeFields.edge): 1"]
            + (request.hasToken ? identity.authorization.map { [$0] } ?? [] : [])
        var fields: [UnsafePointer<CChar>?] = all.map { UnsafePointer(strdup($0)) } + [nil]
        defer { for field in fields { free(UnsafeMutablePointer(mutating: field)) } }
        let body = request.body ?? []
        return request.method.withCString { method in
            (url + request.path).withCString { url in
                fields.withUnsafeMutableBufferPointer { fields in
                    body.withUnsafeBufferPointer { bytes in
                        // An empty array has no address; a request with an empty body has one.
                        var none: UInt8 = 0
                        return withUnsafePointer(to: &none) { none in
                            var parameters = http_request()
                            parameters.method = method
                            parameters.url = url
                            parameters.fields = UnsafePointer(fields.baseAddress)
                            if request.body != nil { parameters.body = bytes.baseAddress ?? none }
                            parameters.length = bytes.count
                            parameters.connect_milliseconds = Int(connectSeconds * 1_000)
                            parameters.milliseconds = request.seconds.map { Int($0 * 1_000) } ?? 0
                            parameters.idle_seconds = request.idleSeconds ?? 0
                            parameters.is_sent_once = request.isSentOnce ? 1 : 0
                            parameters.context = exchange
                            parameters.receive = { context, bytes, length in
                                guard let exchange = context?.assumingMemoryBound(to: Exchange.self) else { return 0 }
                                exchange.pointee.receivedAt = DispatchTime.now().uptimeNanoseconds
                                guard exchange.pointee.checkOrigin() else { return 0 }
                                let piece = UnsafeRawBufferPointer(start: bytes, count: length)
                                return exchange.pointee.receive(exchange.pointee.status, piece) ? 1 : 0
                            }
                            parameters.receive_field = { context, bytes, length in
                                guard let exchange = context?.assumingMemoryBound(to: Exchange.self) else { return }
                                let line = UnsafeRawBufferPointer(start: bytes, count: length)
                                exchange.pointee.take(String(decoding: line, as: UTF8.self))
                            }
                            parameters.is_cancelled = { context in
                                guard let exchange = context?.assumingMemoryBound(to: Exchange.self) else { return 1 }
                                return exchange.pointee.shouldEnd() ? 1 : 0
                            }
                            return http_client_perform(client, &parameters, &error)
                        }
                    }
                }
            }
        }
    }
}

extension UpstreamConnection.Exchange {
    /// Whether the request must end now. libcurl asks from time to time.
    fileprivate mutating func shouldEnd() -> Bool {
        gaveUp = shouldGiveUp(receivedAt)
        return gaveUp || cancellation.isCancelled
    }

    /// Checks once, when the header is complete, whether the response comes from the upstream.
    ///
    /// - Returns: whether it does.
    @discardableResult
    fileprivate mutating func checkOrigin() -> Bool {
        if origin == nil {
            // Copies, because the closure must not capture `self`, which is inout.
            let (identity, status, fields, sentAt) = (identity, status, fields, sentAt)
            origin = Result { () throws(UpstreamError) in
                try identity.check(fields, status: status, sentAt: sentAt)
            }
        }
        if case .failure = origin { return false }
        return true
    }

    /// Parses a line of the header. A status line begins a new response, for example after `100 Continue`.
    fileprivate mutating func take(_ line: String) {
        if line.hasPrefix("HTTP/") {
            let words = line.split(separator: " ")
            status = words.count > 1 ? Int(words[1]) ?? 0 : 0
            fields = []
            return
        }
        guard let colon = line.firstIndex(of: ":") else { return }
        let value = line[line.index(after: colon)...].drop { $0 == " " }
        let end = value.lastIndex { !$0.isWhitespace }.map { value.index(after: $0) } ?? value.startIndex
        fields.append((line[..<colon].lowercased(), String(value[..<end])))
    }
}

extension [UInt8] {
    /// Removes the complete lines at the beginning, and passes them to a function.
    ///
    /// - Parameter line: receives a line without its line feed, and returns whether to continue.
    /// - Returns: the last result of `line`; `true` if there was no line.
    /// - Throws: the error of `line`, which ends the iteration.
    mutating func takeLines<Failure: Error>(
        _ line: (UnsafeRawBufferPointer) throws(Failure) -> Bool
    ) throws(Failure) -> Bool {
        var taken = 0
        var goesOn = true
        var failure: Failure?
        withUnsafeBytes { bytes in
            while goesOn, taken < bytes.count, let base = bytes.baseAddress,
                let end = memchr(base + taken, 0x0A, bytes.count - taken)
            {
                let next = UnsafeRawPointer(end) - base
                do throws(Failure) {
                    goesOn = try line(UnsafeRawBufferPointer(rebasing: bytes[taken..<next]))
                } catch {
                    failure = error
                    goesOn = false
                }
                taken = next + 1
            }
        }
        removeFirst(taken)
        if let failure { throw failure }
        return goesOn
    }
}

@available(*, unavailable) extension UpstreamConnection: Sendable {}
