import Foundation

/// Sends requests to Holdfast's HTTP API, and turns responses into values or ``HoldfastError``.
struct HoldfastServer: Sendable {
    /// The base URL of the server.
    let endpoint: URL
    /// The secret of the token, which the app may replace.
    let token: Locked<String?>
    /// Whether the token may save profiles of its own users only, one by one. Set when the server refuses an import.
    let savesOwnProfiles = SharedFlag(false)
    /// Longest time that a request waits for the next data of the server.
    let timeout: Duration
    let transport: any HoldfastTransport
    let clock: any HoldfastClock
    /// The difference between the clocks, learned from responses.
    let skew: ClockSkew

    /// The current time by the server's clock, for events.
    var now: Date { skew.corrected(clock.now) }

    /// A complete response.
    struct Response: Sendable {
        var status: Int
        /// Names in lower case.
        var fields: [String: String]
        var body: Data
    }

    /// Sends a request.
    ///
    /// - Returns: a response of status 200 to 299, or 304.
    /// - Throws: ``HoldfastError/unauthorized(detail:)``, ``HoldfastError/refused(status:detail:pointer:)``,
    ///   ``HoldfastError/unavailable(status:retryAfter:)`` or ``HoldfastError/invalidResponse(_:)`` for other statuses,
    ///   and errors of the transport.
    func request(
        _ method: String, _ path: String, query: [String: String] = [:], body: [UInt8]? = nil,
        fields: [String: String] = [:]
    ) async throws(HoldfastError) -> Response {
        let response = try await send(method, path, query: query, body: body, fields: fields)
        try Self.check(response)
        return response
    }

    /// Sends a request, and returns the response of any status.
    func send(
        _ method: String, _ path: String, query: [String: String] = [:], contentType: String = "application/json",
        body: [UInt8]? = nil, fields: [String: String] = [:]
    ) async throws(HoldfastError) -> Response {
        var request = makeRequest(method, path, query: query, fields: fields)
        if let body {
            request.body = Data(body)
            request.fields["Content-Type"] = contentType
        }
        let response = try await transport.open(request)
        // A cached response has an old date, but responses to POST are not cached. A response with another status may
        // come from a proxy.
        if method == "POST", (200..<300).contains(response.status) || response.status == 304 {
            skew.learn(response.fields["date"], at: clock.now)
        }
        return Response(status: response.status, fields: response.fields, body: try await response.collected())
    }

    /// Opens a stream of server-sent events.
    ///
    /// - Parameter silence: the maximum time without data.
    func stream(_ path: String, query: [String: String], silence: Duration) async throws(HoldfastError)
        -> ServerSentEvents
    {
        var request = makeRequest("GET", path, query: query, fields: ["Accept": "text/event-stream"])
        request.timeout = silence
        request.maximumBytes = nil
        let response = try await transport.open(request)
        guard response.status == 200 else {
            try Self.check(
                Response(status: response.status, fields: response.fields, body: try await response.collected()))
            throw .invalidResponse("status \(response.status) to a request for an event stream")
        }
        return ServerSentEvents(bytes: response.body)
    }

    private func makeRequest(
        _ method: String, _ path: String, query: [String: String], fields: [String: String]
    ) -> TransportRequest {
        var url = endpoint.appendingPathComponent(path)
        if !query.isEmpty, var components = URLComponents(url: url, resolvingAgainstBaseURL: false) {
            components.queryItems = query.map { URLQueryItem(name: $0.key, value: $0.value) }
            // Servers read `+` in a query as a space; SDK keys may contain one.
            components.percentEncodedQuery = components.percentEncodedQuery?.replacing("+", with: "%2B")
            url = components.url ?? url
        }
        var request = TransportRequest(method: method, url: url, timeout: timeout)
        request.fields = fields
        if let token = token.withLock({ $0 }) { request.fields["Authorization"] = "Bearer \(token)" }
        return request
    }

    /// Checks the status of a response.
    ///
    /// - Throws: the error for a status other than 200 to 299 and 304.
    static func check(_ response: Response) throws(HoldfastError) {
        switch response.status {
        case 200..<300, 304:
            return
        case 300..<400:
            throw .invalidResponse("status \(response.status), but Holdfast never redirects")
        case 408, 425, 429, 500...:
            // `Retry-After` may be a date by the server's clock, so it is compared with the server's date.
            let now = response.fields["date"].flatMap { HTTPDate.parse($0) } ?? Date()
            let retryAfter = RetryAfter.parse(response.fields["retry-after"], now: now)
            throw .unavailable(status: response.status, retryAfter: retryAfter)
        case 401:
            throw .unauthorized(detail: Problem(response)?.text ?? "no details")
        // A 403 in another format is a proxy's, and not about the token.
        case 403 where Problem(response) != nil:
            throw .unauthorized(detail: Problem(response)?.text ?? "no details")
        case 404 where Problem(response)?.isOfUnknownPath == true:
            throw .refused(status: 404, detail: "the server has no such path; check that of the endpoint")
        default:
            let problem = try? JSONDecoder().decode(Problem.self, from: response.body)
            throw .refused(
                status: response.status, detail: problem?.text ?? "no details", pointer: problem?.firstPointer)
        }
    }

    /// Decodes a response body.
    ///
    /// - Throws: ``HoldfastError/invalidResponse(_:)``.
    static func decode<Value: Decodable>(_ type: Value.Type, _ body: Data) throws(HoldfastError) -> Value {
        do {
            return try JSONDecoder().decode(type, from: body)
        } catch {
            throw .invalidResponse("\(error)")
        }
    }

    /// Encodes a request body.
    ///
    /// - Throws: ``HoldfastError/invalidArgument(_:)``, for instance for a number that is not finite.
    static func encode(_ value: some Encodable) throws(HoldfastError) -> [UInt8] {
        do {
            return Array(try JSONEncoder().encode(value))
        } catch {
            throw .invalidArgument("\(error)")
        }
    }
}

/// Parses dates of header fields, such as `Fri, 15 Jan 2027 08:01:30 GMT` (RFC 9110 §5.6.7).
enum HTTPDate {
    private static let formatter: DateFormatter = {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(secondsFromGMT: 0)
        formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss zzz"
        return formatter
    }()

    static func parse(_ text: String) -> Date? { formatter.date(from: text) }
}

/// Parses the header field `Retry-After` (RFC 9110 §10.2.3).
enum RetryAfter {
    /// The longest pause in seconds. A server that asks for more, perhaps by mistake, is tried again after a day.
    private static let longest = 86_400

    /// - Parameter now: the time from which a date is counted.
    /// - Returns: 0 to 86,400 seconds; `nil` for a missing or invalid field.
    static func parse(_ value: String?, now: Date) -> Duration? {
        guard let value else { return nil }
        if let seconds = Int(value) { return seconds < 0 ? nil : .seconds(min(seconds, longest)) }
        guard let date = HTTPDate.parse(value) else { return nil }
        return .seconds(max(0, min(date.timeIntervalSince(now), Double(longest))))
    }
}
