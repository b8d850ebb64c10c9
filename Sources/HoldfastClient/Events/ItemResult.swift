/// The result for one item of a request with several events: `{"index":0,"status":"stored"}`.
///
/// If the item was refused, the reason is a problem (RFC 9457). The routes of the server differ in its place: in the
/// member `problem`, in the member `error`, or in the item itself. The reason may also be only a text, in the member
/// `reason` or `error`.
struct ItemResult: Decodable {
    /// The item's index in the array of the request, from 0.
    let index: Int?
    /// The item's line in the NDJSON of the request, from 1.
    let line: Int?
    /// The outcome as a word: `stored`, `repeated` or `refused`.
    private let outcome: String?
    /// HTTP status of the problem.
    private let problemStatus: Int?
    private let detail: String
    private let pointer: String?
    /// The faults of the item, each with its pointer, if there are several.
    private let faults: [Problem.Entry]
    /// Whether the server may store the item later.
    private let isRetriable: Bool

    private enum CodingKeys: String, CodingKey {
        case index, line, status, reason, problem, error, detail, pointer, errors, retriable
    }

    init(from decoder: any Decoder) throws {
        let item = try decoder.container(keyedBy: CodingKeys.self)
        index = try item.decodeIfPresent(Int.self, forKey: .index)
        line = try item.decodeIfPresent(Int.self, forKey: .line)
        outcome = try? item.decode(String.self, forKey: .status)
        let problem =
            (try? item.nestedContainer(keyedBy: CodingKeys.self, forKey: .problem))
            ?? (try? item.nestedContainer(keyedBy: CodingKeys.self, forKey: .error))
            ?? item
        problemStatus = try? problem.decode(Int.self, forKey: .status)
        detail =
            try problem.decodeIfPresent(String.self, forKey: .detail)
            ?? item.decodeIfPresent(String.self, forKey: .reason)
            ?? (try? item.decode(String.self, forKey: .error))
            ?? "no details"
        pointer = try problem.decodeIfPresent(String.self, forKey: .pointer)
        faults = (try? problem.decodeIfPresent([Problem.Entry].self, forKey: .errors)) ?? []
        isRetriable =
            try item.decodeIfPresent(Bool.self, forKey: .retriable)
            ?? problem.decodeIfPresent(Bool.self, forKey: .retriable) ?? false
    }

    /// The reason of the refusal, with the pointers of all faults.
    var text: String {
        guard faults.count > 1 else { return pointer.map { "\(detail) (\($0))" } ?? detail }
        let faults = faults.compactMap { fault in fault.detail.map { "\($0) (\(fault.pointer ?? ""))" } }
        return "\(detail): \(faults.joined(separator: "; "))"
    }

    /// The server's verdict; `nil` for a result that this version does not know.
    var settlement: HoldfastServer.Settlement? {
        if outcome == "stored" || outcome == "repeated" { return .stored }
        guard outcome == "refused" || problemStatus != nil else { return nil }
        return isRetriable ? .postponed(retriableError) : .refused(text)
    }

    /// The error of an item that the server may store later.
    private var retriableError: HoldfastError {
        guard let problemStatus else { return .unavailable(status: 503, retryAfter: nil) }
        // A 404 without a pointer is about the project: an unknown experiment would have a pointer.
        guard problemStatus != 404 || pointer != nil else { return .unknownProject(detail: detail) }
        return .refused(status: problemStatus, detail: detail, pointer: pointer)
    }
}
