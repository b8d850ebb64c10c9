public import JSON
public import Storage

/// Why Holdfast cannot do what was asked, independent of the protocol that asked. Each protocol renders it in its own
/// error format.
public struct HoldfastError: Error, Sendable {
    public enum Kind: Sendable {
        /// The input breaks a rule of its form. HTTP: 400.
        case invalid
        /// The input is larger than a limit. HTTP: 413.
        case tooLarge
        /// The input has the right form and does not fit what is stored or defined. HTTP: 422.
        case unprocessable
        /// HTTP: 404.
        case notFound
        /// HTTP: 409.
        case conflict
        /// A condition of the caller (`If-Match`) does not hold. HTTP: 412.
        case preconditionFailed
        /// The store or the server cannot do it now; trying again may help. HTTP: 503.
        case unavailable
    }

    public var kind: Kind
    /// What is required, what was found, and where, for a person.
    public var detail: String
    /// The member of the input that is wrong (RFC 6901); `nil` when the input is not at fault.
    public var pointer: JSONPointer?
    /// Every wrong member, where all of them were checked.
    public var faults: [JSONFault] = []
    /// Further details for programs.
    public var members: [(key: String, value: JSONValue)] = []
    /// Seconds after which the caller may try again.
    public var retryAfter: Int?

    public init(_ kind: Kind, _ detail: String, at pointer: JSONPointer? = nil) {
        self.kind = kind
        self.detail = detail
        self.pointer = pointer
        if kind == .unavailable { retryAfter = 1 }
    }

    /// A text that is not JSON.
    ///
    /// - Parameter name: what the error calls the text, such as "the body".
    public init(_ error: JSONError, in name: String) {
        let line = error.line > 1 ? "line \(error.line), " : ""
        self.init(.invalid, "\(name) must be JSON: \(error.message) (\(line)byte \(error.offset))", at: error.pointer)
    }

    /// Input with wrong members; `nil` if there is none.
    ///
    /// - Parameter consequence: ends the detail, such as "nothing was stored".
    public init?(_ kind: Kind = .unprocessable, faults: [JSONFault], _ consequence: String) {
        guard let first = faults.first else { return nil }
        let detail = faults.count == 1 ? first.reason : "\(faults.count) members are wrong"
        self.init(kind, "\(detail); \(consequence)", at: first.pointer)
        self.faults = faults
    }

    /// An operation that the store did not perform. Causes are for the log and readiness, not for every caller.
    public init(_ error: StorageError) {
        switch error {
        case .tooManyAssignments(let limit):
            self.init(
                .unprocessable, "a profile must have at most \(limit) assignments; the change adds too many",
                at: ["experiment_bucket_map"])
        case .conditionFailed:
            self.init(
                .preconditionFailed,
                "If-Match or If-None-Match does not allow the change of the current version; nothing was changed")
        case .overloaded:
            self.init(.unavailable, "too many writes are waiting; nothing was stored; try again later")
        case .staleDatafile:
            self.init(
                .unavailable, "this server cannot use the active datafile, or it changes too fast; nothing was stored")
        case .damaged(let reason):
            self.init(.unavailable, "\(reason); erase the user with DELETE to start over")
        case .erased:
            self.init(.unavailable, "the user was erased during the request; nothing was stored; try again")
        case .unavailable:
            self.init(.unavailable, "the store is unavailable; nothing was acknowledged; GET /readyz names the cause")
        case .closed:
            self.init(.unavailable, "the server is shutting down; nothing was stored")
        }
    }

    /// Bytes of a quoted text in an error, next to what is required.
    public static let longestQuote = 64
}

extension HoldfastError: CustomStringConvertible {
    /// The detail and its place.
    public var description: String {
        guard let pointer, !pointer.string.isEmpty else { return detail }
        return "\(detail), at \(pointer)"
    }
}

extension String {
    /// Returns the text, or its beginning and an ellipsis, in at most `limit` bytes.
    public func shortened(to limit: Int) -> String {
        guard utf8.count > limit else { return self }
        var end = utf8.index(startIndex, offsetBy: max(0, limit - "…".utf8.count))
        while end.samePosition(in: unicodeScalars) == nil { end = utf8.index(before: end) }
        return self[..<end] + "…"
    }
}
