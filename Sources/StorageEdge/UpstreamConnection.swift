import CHTTPClient
import JSON
import Tracing

/// Sends requests to the upstream with libcurl, one at a time, over connections that stay open. Only one thread at a
/// time may use it.
///
/// ``expect(_:)``, ``send(_:)`` and ``lines(of:_:)`` send a ``Request``. Each request passes through three functions:
///
/// - `perform` records a span for traces.
/// - `exchange` checks that the response comes from the upstream, and not from something else at its address.
/// - `transfer` calls libcurl (`UpstreamConnection+Transfer.swift`).
final class UpstreamConnection {
    let url: String
    /// The host of the URL, for spans.
    private let host: String
    /// The port of the URL, for spans.
    private let port: Int
    let identity: UpstreamIdentity
    /// How long connecting may take, in seconds.
    let connectSeconds: Double
    private let cancellation: Cancellation
    /// Called from time to time during a request, with the time when data last arrived, in monotonic nanoseconds. If it
    /// returns `true`, the request ends.
    private let shouldGiveUp: @Sendable (_ receivedAt: UInt64) -> Bool
    /// The client of `CHTTPClient`, which keeps connections open; `nil` before the first request.
    private var client: OpaquePointer?

    /// - Parameter shouldGiveUp: called from time to time during a request; ends the request by returning `true`.
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

    /// Returns the host and the port of a URL.
    private static func address(of url: String) -> (host: String, port: Int) {
        let authority = url.split(separator: "/", maxSplits: 2).dropFirst().first ?? ""
        guard let colon = authority.lastIndex(of: ":"), let port = Int(authority[authority.index(after: colon)...])
        else {
            return (String(authority), url.hasPrefix("https:") ? 443 : 80)
        }
        return (String(authority[..<colon]), port)
    }

    /// A request to the upstream.
    struct Request {
        var method = "GET"
        /// The path with its query.
        var path: String
        /// Header fields as `Name: value`.
        var fields: [String] = []
        /// Whether the edge's token is sent with the request.
        var hasToken = true
        var body: [UInt8]?
        /// The time limit of the whole exchange in seconds; `nil` for none.
        var seconds: Double?
        /// How long no data may arrive, in seconds; `nil` for no limit.
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
    /// - Returns: a response with the status 200 to 299, or 304 if the edge has the newest definitions already.
    /// - Throws: ``UpstreamError/refused(status:detail:)`` for any other status; the errors of ``send(_:)``.
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
    /// - Throws: ``UpstreamError/noResponse(_:)``, ``UpstreamError/late(_:)``, ``UpstreamError/foreign(_:)``,
    ///   ``UpstreamError/tooLarge(limit:)`` or ``UpstreamError/closing``.
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
            // With another status the body is a problem document, which is kept for the error.
            return status != 200 || rest.takeLines(line)
        }
        guard response.status == 200 else { throw Self.refusal(response.status, rest) }
    }

    /// Returns the error for a response that refuses the request, with the detail of its problem document.
    private static func refusal(_ status: Int, _ body: [UInt8]) -> UpstreamError {
        let problem = (try? JSONParser().parse(body))?.object
        return .refused(status: status, detail: problem?["detail"]?.string ?? "it gives no reason")
    }

    /// Performs a request in a span of its own, if it was sent on behalf of traced requests.
    ///
    /// A span has one parent, but a request may serve several traced requests. The parent is the first sampled one, and
    /// the span links to the others.
    ///
    /// - Parameter receive: receives the parts of the body; returns whether to continue.
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
        let isPathPublic = request.path.hasPrefix("/edge/v1/") && !request.path.contains("?")
        var attributes: Span.Attributes = [
            ("http.request.method", .text(request.method)), ("server.address", .text(host)),
            ("server.port", .number(port)),
        ]
        if isPathPublic { attributes.append(("url.template", .text(request.path))) }
        var error: String?
        switch result {
        case .success(let response):
            attributes.append(("http.response.status_code", .number(response.status)))
            if response.status >= 400 { error = "\(response.status)" }
        case .failure(let failure): error = failure.kind
        }
        let links = request.spans.lazy.filter { $0 !== parent && $0.context.isSampled }.map(\.context)
        span.end(
            isPathPublic ? "\(request.method) \(request.path)" : request.method, attributes, error: error,
            links: Array(links))
        return try result.get()
    }

    /// Performs a request, and checks the origin of the response.
    private func exchange(
        _ request: Request, _ receive: (_ status: Int, UnsafeRawBufferPointer) -> Bool
    ) throws(UpstreamError) -> UpstreamResponse {
        guard !cancellation.isCancelled else { throw .closing }
        if client == nil { client = http_client_open() }
        // `http_client_open` loads libcurl, and returns `nil` if libcurl is not installed.
        guard let client else { throw .noResponse("an edge needs libcurl: apt-get install libcurl4") }
        var response = UpstreamResponse()
        var origin: Result<Void, UpstreamError>?
        // `http_client_perform` needs 256 bytes for the reason of a failure.
        var error = [CChar](repeating: 0, count: 256)
        withoutActuallyEscaping(receive) { receive in
            var exchange = Exchange(
                cancellation: cancellation, shouldGiveUp: shouldGiveUp, identity: identity, receive: receive)
            response.status = withUnsafeMutablePointer(to: &exchange) { exchange in
                transfer(request, client, UnsafeMutableRawPointer(exchange), &error)
            }
            if response.status > 0 { exchange.checkOrigin() }
            response.fields = exchange.fields
            origin = exchange.origin
            // The upstream may have performed the request, so there is no complete response; see `transfer`.
            if exchange.gaveUp { response.status = -1 }
        }
        if case .failure(let error) = origin { throw error }
        guard response.status > 0 else {
            guard !cancellation.isCancelled else { throw .closing }
            let reason = String(decoding: error.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            throw response.status < 0 ? .late(reason) : .noResponse(reason)
        }
        return response
    }
}

@available(*, unavailable) extension UpstreamConnection: Sendable {}

/// A response of the upstream with any status.
public struct UpstreamResponse: Sendable {
    public var status = 0
    /// The header fields, in the order in which they arrived.
    public var fields: [(name: String, value: String)] = []
    public var body: [UInt8] = []
}
