import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// An error of a request, with its HTTP status. The native API renders it as `application/problem+json` (RFC 9457);
/// other protocols use their own formats.
struct Problem: Error {
    var status: Status
    /// The description of the error as text.
    var detail: String
    /// The place of the invalid member in the body (RFC 6901); `nil` if the body is not at fault.
    var pointer: JSONPointer?
    /// Further members of the problem.
    var members: [(key: String, value: JSONValue)] = []
    /// Further header fields of the response, such as `Retry-After`.
    var fields: [(name: StaticString, value: String)] = []
    /// See ``CoreError/topic``.
    var topic: CoreError.Topic?

    /// The maximum length of a detail or pointer in bytes: both can quote the request, which may be much longer.
    static let longestDetail = 1_024
    /// The maximum number of faults that a problem lists.
    private static let namedFaults = 100

    /// - Parameters:
    ///   - detail: shortened if too long.
    ///   - pointer: replaced by an enclosing one if too long.
    init(_ status: Status, _ detail: String, at pointer: JSONPointer? = nil) {
        self.status = status
        self.detail = detail.shortened(to: Self.longestDetail)
        self.pointer = pointer?.shortened(to: Self.longestDetail)
        // These errors are temporary, so the client may try again soon.
        if status == .serviceUnavailable || status == .gatewayTimeout { setRetryAfter(seconds: 1) }
    }

    init(_ error: CoreError) {
        self.init(error.kind.status, error.detail, at: error.pointer)
        members = error.members
        topic = error.topic
        if !error.faults.isEmpty { members.insert(("errors", Self.errors(error.faults)), at: 0) }
        if let seconds = error.retryAfter { setRetryAfter(seconds: seconds) }
    }

    /// Creates the problem of any error. The details of an unknown error are not sent.
    init(_ error: any Error) {
        switch error {
        case let error as Problem: self = error
        case let error as CoreError: self.init(error)
        case let error as EventRefusal: self.init(error.error)
        case let error as StorageError: self.init(CoreError(error))
        default: self.init(.internalServerError, "the request failed")
        }
    }

    /// The detail with the pointer, for formats that have one text for both.
    var sentence: String {
        detail + (pointer.map { $0.string.isEmpty ? "" : ", at \($0)" } ?? "")
    }

    private static func errors(_ faults: [JSONFault]) -> JSONValue {
        .array(
            faults.prefix(namedFaults).map { fault in
                [
                    "pointer": .string(fault.pointer.shortened(to: longestDetail).string),
                    "detail": .string(fault.reason.shortened(to: longestDetail)),
                ]
            })
    }

    /// Sets the field `Retry-After` (RFC 9110 §10.2.3).
    private mutating func setRetryAfter(seconds: Int) {
        fields = [("Retry-After", String(seconds))]
    }

    /// Writes the problem, as the body of a response or as the `problem` of one element of a batch.
    ///
    /// - Parameter help: the path of the explanation in the manual; see ``ManualLink``.
    func append(to writer: inout JSONWriter, help: String? = nil) {
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
        if let help { writer.member("help", help) }
        writer.endObject()
    }

    /// Returns the response in the native format.
    ///
    /// - Parameter pattern: the pattern of the route; `nil` if no route has the path.
    func response(on pattern: String?) -> Response {
        var writer = JSONWriter()
        append(to: &writer, help: ManualLink.path(for: status, about: topic, on: pattern, at: pointer))
        writer.endLine()
        var response = Response(status, contentType: MediaType.problem, body: .bytes(writer.finish()))
        response.fields = fields
        return response
    }
}

extension CoreError.Kind {
    /// The status of HTTP for an error of this kind.
    var status: Status {
        switch self {
        case .invalid: .badRequest
        case .tooLarge: .contentTooLarge
        case .unprocessable: .unprocessableContent
        case .forbidden: .forbidden
        case .notFound: .notFound
        case .conflict: .conflict
        case .preconditionFailed: .preconditionFailed
        case .unavailable: .serviceUnavailable
        case .undecided: .gatewayTimeout
        }
    }
}
