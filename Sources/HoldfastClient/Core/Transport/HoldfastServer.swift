import Foundation

/// The calls of Holdfast's HTTP API that the client makes.
struct HoldfastServer: Sendable {
    let endpoint: URL
    let token: String?
    let timeout: Duration
    let transport: any HoldfastTransport

    /// An answer that has come as a whole.
    struct Answer: Sendable {
        var status: Int
        /// Names in lower case.
        var fields: [String: String]
        var body: Data
    }

    /// Sends a request and reads its answer.
    ///
    /// - Returns: an answer of status 200 to 299, or 304.
    /// - Throws: ``HoldfastError/refused(status:detail:pointer:)`` and ``HoldfastError/unavailable(status:retryAfter:)``
    ///   for the others, and what the transport throws.
    func request(
        _ method: String, _ path: String, query: [String: String] = [:], body: [UInt8]? = nil,
        fields: [String: String] = [:]
    ) async throws(HoldfastError) -> Answer {
        let answer = try await send(method, path, query: query, body: body, fields: fields)
        try Self.check(answer)
        return answer
    }

    /// Sends a request and reads its answer, whatever it is.
    func send(
        _ method: String, _ path: String, query: [String: String] = [:], contentType: String = "application/json",
        body: [UInt8]? = nil, fields: [String: String] = [:]
    ) async throws(HoldfastError) -> Answer {
        var request = makeRequest(method, path, query: query, fields: fields)
        if let body {
            request.body = Data(body)
            request.fields["Content-Type"] = contentType
        }
        let answer = try await transport.open(request)
        return Answer(status: answer.status, fields: answer.fields, body: try await answer.collected())
    }

    /// Opens a stream of server-sent events.
    ///
    /// - Parameter silence: how long the server may say nothing.
    func stream(_ path: String, query: [String: String], silence: Duration) async throws(HoldfastError) -> ServerSentEvents {
        var request = makeRequest("GET", path, query: query, fields: ["Accept": "text/event-stream"])
        request.timeout = silence
        request.maximumBytes = nil
        let answer = try await transport.open(request)
        guard answer.status == 200 else {
            try Self.check(Answer(status: answer.status, fields: answer.fields, body: try await answer.collected()))
            throw .invalidAnswer("status \(answer.status) to a request for events")
        }
        return ServerSentEvents(bytes: answer.body)
    }

    private func makeRequest(
        _ method: String, _ path: String, query: [String: String], fields: [String: String]
    ) -> TransportRequest {
        var url = endpoint.appendingPathComponent(path)
        if !query.isEmpty, var components = URLComponents(url: url, resolvingAgainstBaseURL: false) {
            components.queryItems = query.map { URLQueryItem(name: $0.key, value: $0.value) }
            // In a query `+` would be read as a space, and SDK keys may hold one.
            components.percentEncodedQuery = components.percentEncodedQuery?.replacing("+", with: "%2B")
            url = components.url ?? url
        }
        var request = TransportRequest(method: method, url: url, timeout: timeout)
        request.fields = fields
        if let token { request.fields["Authorization"] = "Bearer \(token)" }
        return request
    }

    static func check(_ answer: Answer) throws(HoldfastError) {
        switch answer.status {
        case 200..<300, 304:
            return
        case 300..<400:
            throw .invalidAnswer("status \(answer.status), and Holdfast sends nobody elsewhere")
        case 408, 425, 429, 500...:
            throw .unavailable(status: answer.status, retryAfter: RetryAfter.parse(answer.fields["retry-after"]))
        default:
            let problem = try? JSONDecoder().decode(Problem.self, from: answer.body)
            throw .refused(
                status: answer.status, detail: problem?.text ?? "the server says no more", pointer: problem?.place)
        }
    }

    /// Reads an answer's body.
    static func decode<Value: Decodable>(_ type: Value.Type, _ body: Data) throws(HoldfastError) -> Value {
        do {
            return try JSONDecoder().decode(type, from: body)
        } catch {
            throw .invalidAnswer("\(error)")
        }
    }

    /// Writes a request's body.
    static func encode(_ value: some Encodable) throws(HoldfastError) -> [UInt8] {
        do {
            return Array(try JSONEncoder().encode(value))
        } catch {
            throw .invalidArgument("\(error)")
        }
    }
}

/// RFC 9457, as Holdfast writes it.
struct Problem: Decodable {
    struct Entry: Decodable {
        var pointer: String?
        var detail: String?
    }

    private var title: String?
    private var status: Int?
    private var detail: String?
    private var pointer: String?
    private var errors: [Entry]?

    /// - Returns: `nil` for an answer that is not in Holdfast's format, and so may be of somebody in between.
    init?(_ answer: HoldfastServer.Answer) {
        guard answer.fields["content-type"]?.lowercased().hasPrefix("application/problem+json") == true,
            let problem = try? JSONDecoder().decode(Problem.self, from: answer.body),
            problem.status == answer.status, problem.title != nil, problem.detail != nil
        else { return nil }
        self = problem
    }

    var text: String? {
        let entries = (errors ?? []).compactMap { entry in entry.detail.map { "\(entry.pointer ?? ""): \($0)" } }
        let all = [detail].compactMap(\.self) + entries
        return all.isEmpty ? nil : all.joined(separator: "; ")
    }

    /// The member of the body that is wrong (RFC 6901).
    var place: String? { pointer ?? errors?.first?.pointer }

    /// The element of the body's array that is wrong.
    var element: Int? {
        let tokens = place?.split(separator: "/", omittingEmptySubsequences: false) ?? []
        return tokens.count > 1 ? Int(tokens[1]) : nil
    }

    /// For a person.
    var textAndPlace: String {
        [text, place.flatMap { $0.isEmpty ? nil : "(\($0))" }].compactMap(\.self).joined(separator: " ")
    }
}
