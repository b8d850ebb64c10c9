import Foundation

/// The calls of Holdfast's HTTP API that the client makes.
struct HoldfastServer: Sendable {
    let endpoint: URL
    let token: String?
    let timeout: Duration
    let transport: any HoldfastTransport

    /// Sends a request and reads its answer.
    ///
    /// - Returns: an answer of status 200 to 299, or 304.
    /// - Throws: ``HoldfastError/refused(status:detail:pointer:)`` and ``HoldfastError/unavailable(status:retryAfter:)``
    ///   for the others, and what the transport throws.
    func request(
        _ method: String, _ path: String, query: [String: String] = [:], contentType: String = "application/json",
        body: [UInt8]? = nil, fields: [String: String] = [:]
    ) async throws(HoldfastError) -> (status: Int, fields: [String: String], body: Data) {
        var request = makeRequest(method, path, query: query, fields: fields)
        if let body {
            request.body = Data(body)
            request.fields["Content-Type"] = contentType
        }
        let answer = try await transport.open(request)
        let content = try await answer.collected()
        try Self.check(answer, content)
        return (answer.status, answer.fields, content)
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
            try Self.check(answer, try await answer.collected())
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

    private static func check(_ answer: TransportAnswer, _ content: Data) throws(HoldfastError) {
        switch answer.status {
        case 200..<300, 304:
            return
        case 300..<400:
            throw .invalidAnswer("status \(answer.status), and Holdfast sends nobody elsewhere")
        case 408, 425, 429, 500...:
            throw .unavailable(status: answer.status, retryAfter: RetryAfter.parse(answer.fields["retry-after"]))
        default:
            let problem = try? JSONDecoder().decode(Problem.self, from: content)
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
private struct Problem: Decodable {
    struct Entry: Decodable {
        var pointer: String?
        var detail: String?
    }

    var detail: String?
    var pointer: String?
    var errors: [Entry]?

    var text: String? {
        let entries = (errors ?? []).compactMap { entry in entry.detail.map { "\(entry.pointer ?? ""): \($0)" } }
        let all = [detail].compactMap(\.self) + entries
        return all.isEmpty ? nil : all.joined(separator: "; ")
    }

    var place: String? { pointer ?? errors?.first?.pointer }
}
