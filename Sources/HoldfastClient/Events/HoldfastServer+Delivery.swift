import Foundation

extension HoldfastServer {
    /// The server's verdict on one event of a request.
    enum Settlement: Sendable {
        case stored
        case refused(String)
        /// Refused for now; may be stored later.
        case postponed(HoldfastError)
        /// No verdict, with the reason.
        case open(HoldfastError)
    }

    /// Sends events of one kind in one request.
    ///
    /// Only a response in Holdfast's own format settles an event, and only an event that it names, because a proxy may
    /// respond with anything.
    ///
    /// - Returns: a verdict for each event, in order.
    /// - Throws: an error of the server or the network; all events may be sent again.
    func deliver(_ kind: EventKind, _ payloads: [[UInt8]]) async throws(HoldfastError) -> [Settlement] {
        switch kind {
        case .attributes: try await deliverLines(payloads, to: "v1/profiles/attributes")
        case .save: try await deliverProfiles(payloads, query: ["on_conflict": "keep"])
        case .replacingSave: try await deliverProfiles(payloads, query: [:])
        case .exposure: try await deliverArray(payloads, to: "v1/exposures")
        case .goal: try await deliverArray(payloads, to: "v1/events")
        case .login: try await deliverArray(payloads, to: "v1/logins")
        case .evaluationCounts: try await deliverArray(payloads, to: "v1/evaluations/counts", isOptional: true)
        }
    }

    // MARK: Profiles

    /// Sends saves in one import. With a token that may save the profiles of its own users only, sends them one by one.
    private func deliverProfiles(
        _ payloads: [[UInt8]], query: [String: String]
    ) async throws(HoldfastError) -> [Settlement] {
        if !savesOwnProfiles.isSet {
            do throws(HoldfastError) {
                return try await deliverLines(payloads, to: "v1/profiles", query: query)
            } catch .unauthorized {
                savesOwnProfiles.isSet = true
            }
        }
        var settlements: [Settlement] = []
        for payload in payloads {
            let response = try await send("POST", "ups/save", query: query, body: payload)
            do throws(HoldfastError) {
                settlements += response.status == 200 ? [.stored] : try Self.settlements(response, 1)
            } catch .unauthorized(let detail) where response.status == 403 {
                // The save is for another user, who may come back. It does not delay those of the current user.
                settlements.append(.postponed(.unauthorized(detail: detail)))
            }
        }
        return settlements
    }

    // MARK: Lines

    /// The response to an import, alone or within a problem.
    private struct ImportSummary: Decodable {
        var imported: Int
        var refused: Int
        /// Refused lines; the server may name only some.
        var errors: [ItemResult]
    }

    private func deliverLines(
        _ payloads: [[UInt8]], to path: String, query: [String: String] = [:]
    ) async throws(HoldfastError) -> [Settlement] {
        let body = payloads.reduce(into: [UInt8]()) { $0 += $1 + [UInt8(ascii: "\n")] }
        let response = try await send("POST", path, query: query, contentType: "application/x-ndjson", body: body)
        // 422 if no line was imported; the body names the lines as well.
        guard response.status == 200 || response.status == 422,
            let summary = try? Self.decode(ImportSummary.self, response.body)
        else { return try Self.settlements(response, payloads.count) }
        return Self.settlements(summary, payloads.count)
    }

    private static func settlements(_ summary: ImportSummary, _ count: Int) -> [Settlement] {
        let reasons = summary.errors.reduce(into: [Int: String]()) { reasons, error in
            guard let line = error.line, (1...count).contains(line) else { return }
            reasons[line] = error.text
        }
        let unnamed = HoldfastError.invalidResponse("the response does not account for each line")
        // Both numbers come from outside and may overflow.
        let (lines, isTooLarge) = summary.imported.addingReportingOverflow(summary.refused)
        guard !isTooLarge, lines == count, summary.imported >= 0, reasons.count == summary.errors.count,
            reasons.count <= summary.refused
        else { return Array(repeating: .open(unnamed), count: count) }
        // Unless every refused line is named, an unnamed line has no verdict.
        let isComplete = reasons.count == summary.refused
        return (1...count).map { line in
            reasons[line].map { .refused($0) } ?? (isComplete ? .stored : .open(unnamed))
        }
    }

    // MARK: Arrays

    private struct EventResults: Decodable {
        var results: [ItemResult]
    }

    /// - Parameter isOptional: whether a server that does not have the route refuses the events.
    private func deliverArray(
        _ payloads: [[UInt8]], to path: String, isOptional: Bool = false
    ) async throws(HoldfastError) -> [Settlement] {
        let body = [UInt8(ascii: "[")] + payloads.joined(separator: [UInt8(ascii: ",")]) + [UInt8(ascii: "]")]
        let response = try await send("POST", path, body: body)
        if isOptional, response.status == 404, let problem = Problem(response) {
            return Array(repeating: .refused(problem.textAndPlace), count: payloads.count)
        }
        guard (200..<300).contains(response.status) else { return try Self.settlements(response, payloads.count) }
        let unnamed = HoldfastError.invalidResponse("the response does not account for each event")
        var settlements = [Settlement](repeating: .open(unnamed), count: payloads.count)
        for result in try Self.decode(EventResults.self, response.body).results {
            guard let index = result.index, settlements.indices.contains(index) else { continue }
            if let settlement = result.settlement { settlements[index] = settlement }
        }
        return settlements
    }

    // MARK: Requests refused as a whole

    /// - Throws: the error, unless the events are its cause.
    private static func settlements(_ response: Response, _ count: Int) throws(HoldfastError) -> [Settlement] {
        do throws(HoldfastError) {
            try check(response)
        } catch {
            guard case .refused(let status, _, _) = error else { throw error }
            guard let problem = Problem(response) else {
                // A proxy's size limit or filter may object to one event: bisection finds it.
                guard isOfTheBody(status) else { throw error }
                let foreign = HoldfastError.invalidResponse("status \(status) not in Holdfast's format")
                return Array(repeating: .open(foreign), count: count)
            }
            // Without a pointer into the body, the body is not the problem.
            guard problem.place != nil || status == 413 else { throw error }
            if count == 1 { return [.refused(problem.textAndPlace)] }
            var settlements = [Settlement](repeating: .open(error), count: count)
            if let index = problem.element, settlements.indices.contains(index) {
                settlements[index] = .refused(problem.textAndPlace)
            }
            return settlements
        }
        throw .invalidResponse("not a Holdfast response to events")
    }

    /// Whether a status can be about the body, rather than the token, the URL or the state of the server.
    private static func isOfTheBody(_ status: Int) -> Bool {
        ![401, 404, 405, 407, 421].contains(status)
    }
}

/// The result for one item of a request. The reason of a refusal is an RFC 9457 problem in the member `problem`, in the
/// member `error` or in the item itself, or a string.
private struct ItemResult: Decodable {
    /// Zero-based.
    let index: Int?
    /// One-based.
    let line: Int?
    /// Such as `stored`.
    private let word: String?
    /// HTTP status of the problem.
    private let status: Int?
    private let detail: String
    private let pointer: String?
    /// The single faults, if there are several.
    private let faults: [Problem.Entry]
    private let isRetriable: Bool

    private enum CodingKeys: String, CodingKey {
        case index, line, status, reason, problem, error, detail, pointer, errors, retriable
    }

    init(from decoder: any Decoder) throws {
        let item = try decoder.container(keyedBy: CodingKeys.self)
        index = try item.decodeIfPresent(Int.self, forKey: .index)
        line = try item.decodeIfPresent(Int.self, forKey: .line)
        word = try? item.decode(String.self, forKey: .status)
        let problem =
            (try? item.nestedContainer(keyedBy: CodingKeys.self, forKey: .problem))
            ?? (try? item.nestedContainer(keyedBy: CodingKeys.self, forKey: .error)) ?? item
        status = try? problem.decode(Int.self, forKey: .status)
        detail =
            try problem.decodeIfPresent(String.self, forKey: .detail) ?? item.decodeIfPresent(
                String.self, forKey: .reason)
            ?? (try? item.decode(String.self, forKey: .error)) ?? "no details"
        pointer = try problem.decodeIfPresent(String.self, forKey: .pointer)
        faults = (try? problem.decodeIfPresent([Problem.Entry].self, forKey: .errors)) ?? []
        isRetriable =
            try item.decodeIfPresent(Bool.self, forKey: .retriable)
            ?? problem.decodeIfPresent(Bool.self, forKey: .retriable) ?? false
    }

    /// The reason of the refusal.
    var text: String {
        guard faults.count > 1 else { return pointer.map { "\(detail) (\($0))" } ?? detail }
        let faults = faults.compactMap { fault in fault.detail.map { "\($0) (\(fault.pointer ?? ""))" } }
        return "\(detail): \(faults.joined(separator: "; "))"
    }

    /// `nil` for a result unknown to this version.
    var settlement: HoldfastServer.Settlement? {
        if word == "stored" || word == "repeated" { return .stored }
        guard word == "refused" || status != nil else { return nil }
        guard isRetriable else { return .refused(text) }
        return .postponed(
            status.map { status in
                // Whatever else is unknown, such as an experiment, has a pointer.
                status == 404 && pointer == nil
                    ? .unknownProject(detail: detail) : .refused(status: status, detail: detail, pointer: pointer)
            } ?? .unavailable(status: 503, retryAfter: nil))
    }
}
