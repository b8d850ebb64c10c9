import Foundation

/// The body of an error response (RFC 9457), with the members that Holdfast adds: `pointer` for one fault of the
/// request, `errors` for several.
struct Problem: Decodable {
    /// A fault of the request.
    struct Entry: Decodable {
        /// JSON pointer (RFC 6901) to the wrong member of the body.
        var pointer: String?
        var detail: String?
    }

    private var title: String?
    private var status: Int?
    private var detail: String?
    private var pointer: String?
    private var errors: [Entry]?

    /// Reads the problem of a response.
    ///
    /// - Returns: `nil` if the response is not in Holdfast's format, because it may come from a proxy.
    init?(_ response: HoldfastServer.Response) {
        guard response.fields["content-type"]?.lowercased().hasPrefix("application/problem+json") == true,
            let problem = try? JSONDecoder().decode(Problem.self, from: response.body),
            problem.status == response.status, problem.title != nil, problem.detail != nil
        else { return nil }
        self = problem
    }

    /// The detail, followed by the pointers and details of all errors; `nil` if the problem has neither.
    var text: String? {
        let entries = (errors ?? []).compactMap { entry in entry.detail.map { "\(entry.pointer ?? ""): \($0)" } }
        let all = [detail].compactMap(\.self) + entries
        return all.isEmpty ? nil : all.joined(separator: "; ")
    }

    /// Whether the server has no such route, as opposed to no such project or experiment. Both have the status 404, so
    /// the detail must tell them apart.
    var isOfUnknownPath: Bool { status == 404 && detail?.hasPrefix("no resource has this path") == true }

    /// The JSON pointer to the wrong member of the body, of the first fault if there are several.
    var firstPointer: String? { pointer ?? errors?.first?.pointer }

    /// The index of the wrong element, if the body is an array.
    var elementIndex: Int? {
        let tokens = firstPointer?.split(separator: "/", omittingEmptySubsequences: false) ?? []
        return tokens.count > 1 ? Int(tokens[1]) : nil
    }

    /// ``text`` and the pointer in parentheses, for people.
    var textWithPointer: String {
        [text, firstPointer.flatMap { $0.isEmpty ? nil : "(\($0))" }].compactMap(\.self).joined(separator: " ")
    }
}
