import Bucketing
import HTTPServer
import JSON
import Storage

/// An error as a caller sees it (RFC 9457, `application/problem+json`).
struct Problem: Error {
    var status: Status
    /// What is wrong, for a person.
    var detail: String
    /// Which member of the body is wrong (RFC 6901); `nil` when it is not the body's fault.
    var pointer: JSONPointer?
    /// Further members of the problem.
    var members: [(key: String, value: JSONValue)] = []
    /// Further fields of the answer.
    var fields: [(name: StaticString, value: String)] = []

    /// Bytes of what a problem tells of a request, which may be as long as a request may be.
    static let longestDetail = 1_024
    /// Bytes of one text that a problem quotes beside what is required.
    static let longestQuote = 64

    /// - Parameters:
    ///   - detail: cut if it is too long.
    ///   - pointer: of what surrounds the place if it is too long.
    init(_ status: Status, _ detail: String, at pointer: JSONPointer? = nil) {
        self.status = status
        self.detail = detail.shortened(to: Self.longestDetail)
        self.pointer = pointer?.shortened(to: Self.longestDetail)
        if status == .serviceUnavailable { mayBeTried(after: 1) }
    }

    /// `Retry-After` (RFC 9110 §10.2.3)
    mutating func mayBeTried(after seconds: Int) {
        fields = [("Retry-After", String(seconds))]
    }

    /// A text that is no JSON.
    init(_ error: JSONError, in name: String) {
        let line = error.line > 1 ? "line \(error.line), " : ""
        self.init(
            .badRequest, "\(name) must be JSON: \(error.message) (\(line)byte \(error.offset))", at: error.pointer)
    }

    /// What the store could not do. Causes are for the log and `GET /readyz`, not for every caller.
    init(_ error: StorageError) {
        switch error {
        case .tooManyAssignments(let limit):
            self.init(
                .unprocessableContent, "a profile must have at most \(limit) assignments; the change adds too many",
                at: ["experiment_bucket_map"])
        case .conditionFailed:
            self.init(
                .preconditionFailed,
                "If-Match or If-None-Match does not allow the change of the current version; nothing was changed")
        case .overloaded:
            self.init(.serviceUnavailable, "too many writes are waiting; nothing was stored; try again later")
        case .staleDatafile:
            self.init(
                .serviceUnavailable,
                "this server cannot use the active datafile, or it changes too fast; nothing was stored")
        case .damaged(let reason):
            self.init(.serviceUnavailable, "\(reason); erase the user with DELETE to start over")
        case .erased:
            self.init(.serviceUnavailable, "the user was erased during the request; nothing was stored; try again")
        case .unavailable:
            self.init(.serviceUnavailable, "the store is unavailable; nothing was acknowledged; GET /readyz names the cause")
        case .closed:
            self.init(.serviceUnavailable, "the server is shutting down; nothing was stored")
        }
    }

    /// Writes the problem as the body of a response, and as the `problem` of a batch's element, have it.
    func append(to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("type", "about:blank")
        writer.member("title", status.reason.description)
        writer.member("status", status.code)
        writer.member("detail", detail)
        if let pointer {
            writer.member("pointer", pointer.string)
        }
        for member in members {
            writer.key(text: member.key)
            writer.value(member.value)
        }
        writer.endObject()
    }

    var response: Response {
        var writer = JSONWriter()
        append(to: &writer)
        writer.endLine()
        var response = Response(status, contentType: MediaType.problem, body: .bytes(writer.finish()))
        response.fields = fields
        return response
    }
}
