import Foundation

/// Requests that deliver events, and the server's verdict on each event.
///
/// There are three forms of requests: lines of NDJSON (imports of profiles and attributes), JSON arrays (all other
/// events), and single saves for a token that may not import.
extension HoldfastServer {
    /// The server's verdict on one event of a request.
    enum Settlement: Sendable {
        case stored
        /// Refused for good, with the reason.
        case refused(String)
        /// Refused for now; may be stored later.
        case postponed(HoldfastError)
        /// The response has no verdict on the event, for this reason.
        case open(HoldfastError)
    }

    /// Sends events of one kind in one request.
    ///
    /// Only a response in Holdfast's own format settles events, and only the events that it names, because a proxy may
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

    /// Sends saves in one import. If the token may save only the profiles of its own users, sends them one by one.
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
                // The save is of another user of the device, who may log in again. It must not delay the saves of the
                // current user.
                settlements.append(.postponed(.unauthorized(detail: detail)))
            }
        }
        return settlements
    }

    // MARK: Lines

    /// The numbers of lines that an import has stored and refused, in a response of status 200 or in a problem.
    private struct ImportSummary: Decodable {
        var imported: Int
        var refused: Int
        /// The refused lines, of which the server may name only some.
        var errors: [ItemResult]
    }

    /// Sends events as lines of NDJSON.
    private func deliverLines(
        _ payloads: [[UInt8]], to path: String, query: [String: String] = [:]
    ) async throws(HoldfastError) -> [Settlement] {
        let body = payloads.reduce(into: [UInt8]()) { $0 += $1 + [UInt8(ascii: "\n")] }
        let response = try await send("POST", path, query: query, contentType: "application/x-ndjson", body: body)
        // The status is 422 if no line was imported; the body then also names the refused lines.
        guard response.status == 200 || response.status == 422,
            let summary = try? Self.decode(ImportSummary.self, response.body)
        else { return try Self.settlements(response, payloads.count) }
        return Self.settlements(summary, payloads.count)
    }

    /// Returns the verdict on each line of an import.
    private static func settlements(_ summary: ImportSummary, _ count: Int) -> [Settlement] {
        let reasons = summary.errors.reduce(into: [Int: String]()) { reasons, error in
            guard let line = error.line, (1...count).contains(line) else { return }
            reasons[line] = error.text
        }
        let unnamed = HoldfastError.invalidResponse("the response does not account for each line")
        // Both numbers come from outside and may overflow.
        let (lines, overflows) = summary.imported.addingReportingOverflow(summary.refused)
        let coversAllLines = !overflows && lines == count && summary.imported >= 0
        // Otherwise an error has no valid line, or two errors have the same line.
        let namesDifferentLines = reasons.count == summary.errors.count
        guard coversAllLines, namesDifferentLines, reasons.count <= summary.refused else {
            return Array(repeating: .open(unnamed), count: count)
        }
        // If the server has not named every refused line, an unnamed line may be stored or refused.
        let namesAllRefusals = reasons.count == summary.refused
        return (1...count).map { line in
            reasons[line].map { .refused($0) } ?? (namesAllRefusals ? .stored : .open(unnamed))
        }
    }

    // MARK: Arrays

    private struct EventResults: Decodable {
        var results: [ItemResult]
    }

    /// Sends events as a JSON array.
    ///
    /// - Parameter isOptional: whether the events are dropped if the server does not have the route, because it is of
    ///   an earlier release.
    private func deliverArray(
        _ payloads: [[UInt8]], to path: String, isOptional: Bool = false
    ) async throws(HoldfastError) -> [Settlement] {
        let body = [UInt8(ascii: "[")] + payloads.joined(separator: [UInt8(ascii: ",")]) + [UInt8(ascii: "]")]
        let response = try await send("POST", path, body: body)
        if isOptional, response.status == 404, let problem = Problem(response) {
            return Array(repeating: .refused(problem.textWithPointer), count: payloads.count)
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

    /// Returns the verdicts of a response without results for single events.
    ///
    /// - Throws: the error of the response, unless the events are its cause.
    private static func settlements(_ response: Response, _ count: Int) throws(HoldfastError) -> [Settlement] {
        do throws(HoldfastError) {
            try check(response)
        } catch {
            guard case .refused(let status, _, _) = error else { throw error }
            guard let problem = Problem(response) else {
                // A proxy may refuse one of the events by its size or content. Bisection finds that event.
                guard mayConcernBody(status) else { throw error }
                let foreign = HoldfastError.invalidResponse("status \(status) not in Holdfast's format")
                return Array(repeating: .open(foreign), count: count)
            }
            // Without a pointer into the body, the body is not the problem, unless it is too large (413).
            guard problem.firstPointer != nil || status == 413 else { throw error }
            if count == 1 { return [.refused(problem.textWithPointer)] }
            var settlements = [Settlement](repeating: .open(error), count: count)
            if let index = problem.elementIndex, settlements.indices.contains(index) {
                settlements[index] = .refused(problem.textWithPointer)
            }
            return settlements
        }
        throw .invalidResponse("not a Holdfast response to events")
    }

    /// Whether a status may be due to the body, rather than to the token, the URL or the state of the server.
    private static func mayConcernBody(_ status: Int) -> Bool {
        ![401, 404, 405, 407, 421].contains(status)
    }
}
