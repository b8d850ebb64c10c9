import Foundation

extension HoldfastServer {
    /// What the server says of one event of a request.
    enum Settlement: Sendable {
        case stored
        case refused(String)
        /// Not now, but perhaps later.
        case postponed(HoldfastError)
        /// Nothing; with the reason.
        case open(HoldfastError)
    }

    /// Sends events of one kind in one request.
    ///
    /// Only an answer in Holdfast's own format settles an event, and only one that it names: what stands between may answer
    /// as it likes.
    ///
    /// - Returns: what the server says of each, in their order.
    /// - Throws: what is wrong with the server or the way to it; then all may be sent again.
    func deliver(_ kind: EventKind, _ payloads: [[UInt8]]) async throws(HoldfastError) -> [Settlement] {
        switch kind {
        case .attributes: try await deliverLines(payloads, to: "v1/profiles/attributes")
        case .save: try await deliverLines(payloads, to: "v1/profiles", query: ["on_conflict": "keep"])
        case .replacingSave: try await deliverLines(payloads, to: "v1/profiles")
        case .exposure: try await deliverArray(payloads, to: "v1/exposures")
        case .goal: try await deliverArray(payloads, to: "v1/events")
        }
    }

    // MARK: Lines

    /// What an import answers, alone or within a problem.
    private struct ImportSummary: Decodable {
        var imported: Int
        var refused: Int
        /// Refused lines, or as many of them as the server names.
        var errors: [ItemResult]
    }

    private func deliverLines(
        _ payloads: [[UInt8]], to path: String, query: [String: String] = [:]
    ) async throws(HoldfastError) -> [Settlement] {
        let body = payloads.reduce(into: [UInt8]()) { $0 += $1 + [UInt8(ascii: "\n")] }
        let answer = try await send("POST", path, query: query, contentType: "application/x-ndjson", body: body)
        // A server that imports no line at all answers 422, and names the lines all the same.
        guard answer.status == 200 || answer.status == 422,
            let summary = try? Self.decode(ImportSummary.self, answer.body)
        else { return try Self.settlements(answer, payloads.count) }
        return Self.settlements(summary, payloads.count)
    }

    private static func settlements(_ summary: ImportSummary, _ count: Int) -> [Settlement] {
        let reasons = summary.errors.reduce(into: [Int: String]()) { reasons, error in
            guard let line = error.line, (1...count).contains(line) else { return }
            reasons[line] = error.text
        }
        let unnamed = HoldfastError.invalidAnswer("it does not say what became of each line")
        // Both may be any number.
        let (lines, isTooLarge) = summary.imported.addingReportingOverflow(summary.refused)
        guard !isTooLarge, lines == count, summary.imported >= 0, reasons.count == summary.errors.count,
            reasons.count <= summary.refused
        else { return Array(repeating: .open(unnamed), count: count) }
        // The lines that are left out may be any of those that are not named.
        let isComplete = reasons.count == summary.refused
        return (1...count).map { line in
            reasons[line].map { .refused($0) } ?? (isComplete ? .stored : .open(unnamed))
        }
    }

    // MARK: Arrays

    private struct EventResults: Decodable {
        var results: [ItemResult]
    }

    private func deliverArray(_ payloads: [[UInt8]], to path: String) async throws(HoldfastError) -> [Settlement] {
        let body = [UInt8(ascii: "[")] + payloads.joined(separator: [UInt8(ascii: ",")]) + [UInt8(ascii: "]")]
        let answer = try await send("POST", path, body: body)
        guard (200..<300).contains(answer.status) else { return try Self.settlements(answer, payloads.count) }
        let unnamed = HoldfastError.invalidAnswer("it does not say what became of each event")
        var settlements = [Settlement](repeating: .open(unnamed), count: payloads.count)
        for result in try Self.decode(EventResults.self, answer.body).results {
            guard let index = result.index, settlements.indices.contains(index) else { continue }
            if let settlement = result.settlement { settlements[index] = settlement }
        }
        return settlements
    }

    // MARK: Requests that are refused as a whole

    /// - Throws: what is wrong, where the events are not.
    private static func settlements(_ answer: Answer, _ count: Int) throws(HoldfastError) -> [Settlement] {
        do throws(HoldfastError) {
            try check(answer)
        } catch {
            guard case .refused(let status, _, _) = error else { throw error }
            guard let problem = Problem(answer) else {
                // A proxy's limit or filter may mean one event: smaller requests find it.
                guard isOfTheBody(status) else { throw error }
                let foreign = HoldfastError.invalidAnswer("status \(status) in a format that is not Holdfast's")
                return Array(repeating: .open(foreign), count: count)
            }
            // Without a place in the body the problem is not the body's.
            guard problem.place != nil || status == 413 else { throw error }
            if count == 1 { return [.refused(problem.textAndPlace)] }
            var settlements = [Settlement](repeating: .open(error), count: count)
            if let index = problem.element, settlements.indices.contains(index) {
                settlements[index] = .refused(problem.textAndPlace)
            }
            return settlements
        }
        throw .invalidAnswer("it is not what Holdfast answers to events")
    }

    /// Whether a status may say that what was sent is wrong, and not the token, the address or the moment.
    private static func isOfTheBody(_ status: Int) -> Bool {
        ![401, 404, 405, 407, 421].contains(status)
    }
}

/// What Holdfast says of one item of a request: what became of it, or why it was not taken, as the members of a problem
/// (RFC 9457) in its `problem`, in its `error` or in the item itself, or as a text.
private struct ItemResult: Decodable {
    /// From 0.
    let index: Int?
    /// From 1.
    let line: Int?
    /// The word, as `stored`.
    private let word: String?
    /// Of the problem.
    private let status: Int?
    private let detail: String
    private let pointer: String?
    private let isRetriable: Bool

    private enum CodingKeys: String, CodingKey {
        case index, line, status, reason, problem, error, detail, pointer, retriable
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
            try problem.decodeIfPresent(String.self, forKey: .detail) ?? item.decodeIfPresent(String.self, forKey: .reason)
            ?? (try? item.decode(String.self, forKey: .error)) ?? "the server says no more"
        pointer = try problem.decodeIfPresent(String.self, forKey: .pointer)
        isRetriable =
            try item.decodeIfPresent(Bool.self, forKey: .retriable)
            ?? problem.decodeIfPresent(Bool.self, forKey: .retriable) ?? false
    }

    /// Why it was not taken.
    var text: String { pointer.map { "\(detail) (\($0))" } ?? detail }

    /// `nil` for a result that this version does not know.
    var settlement: HoldfastServer.Settlement? {
        if word == "stored" || word == "repeated" { return .stored }
        guard word == "refused" || status != nil else { return nil }
        guard isRetriable else { return .refused(text) }
        return .postponed(
            status.map { .refused(status: $0, detail: detail, pointer: pointer) }
                ?? .unavailable(status: 503, retryAfter: nil))
    }
}
