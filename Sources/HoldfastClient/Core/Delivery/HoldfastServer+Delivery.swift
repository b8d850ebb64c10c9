import Foundation

extension HoldfastServer {
    /// What became of one event of a request.
    enum Settlement: Sendable {
        case stored
        case refused(String)
        /// To be sent again.
        case postponed(String)
    }

    /// Sends events of one kind in one request.
    ///
    /// - Returns: what became of each, in their order.
    /// - Throws: when it failed as a whole; then all may be sent again.
    func deliver(_ kind: EventKind, _ payloads: [[UInt8]]) async throws(HoldfastError) -> [Settlement] {
        switch kind {
        case .attributes: try await deliverLines(payloads, to: "v1/profiles/attributes")
        case .save: try await deliverLines(payloads, to: "v1/profiles", query: ["on_conflict": "keep"])
        case .replacingSave: try await deliverLines(payloads, to: "v1/profiles")
        case .exposure: try await deliverArray(payloads, to: "v1/exposures")
        case .goal: try await deliverArray(payloads, to: "v1/events")
        }
    }

    private struct LineSummary: Decodable {
        struct Refusal: Decodable {
            var line: Int
            var detail: String?
            var pointer: String?
        }

        var refused: Int
        var errors: [Refusal]?
    }

    private func deliverLines(
        _ payloads: [[UInt8]], to path: String, query: [String: String] = [:]
    ) async throws(HoldfastError) -> [Settlement] {
        let body = payloads.reduce(into: [UInt8]()) { $0 += $1 + [UInt8(ascii: "\n")] }
        let answer = try await request("POST", path, query: query, contentType: "application/x-ndjson", body: body)
        let summary = try Self.decode(LineSummary.self, answer.body)
        var settlements = [Settlement](repeating: .stored, count: payloads.count)
        for refusal in summary.errors ?? [] where settlements.indices.contains(refusal.line - 1) {
            let place = refusal.pointer.map { " (\($0))" } ?? ""
            settlements[refusal.line - 1] = .refused((refusal.detail ?? "the server says no more") + place)
        }
        return settlements
    }

    private struct EventResults: Decodable {
        struct Result: Decodable {
            var index: Int
            var status: String
            var reason: String?
            var retriable: Bool?
        }

        var results: [Result]
    }

    private func deliverArray(_ payloads: [[UInt8]], to path: String) async throws(HoldfastError) -> [Settlement] {
        let body = [UInt8(ascii: "[")] + payloads.joined(separator: [UInt8(ascii: ",")]) + [UInt8(ascii: "]")]
        let answer = try await request("POST", path, body: body)
        var settlements = [Settlement](repeating: .postponed("the server does not say"), count: payloads.count)
        for result in try Self.decode(EventResults.self, answer.body).results
        where settlements.indices.contains(result.index) {
            let reason = result.reason ?? "the server says no more"
            settlements[result.index] =
                switch result.status {
                case "stored", "repeated": .stored
                case _ where result.retriable == true: .postponed(reason)
                default: .refused(reason)
                }
        }
        return settlements
    }
}
