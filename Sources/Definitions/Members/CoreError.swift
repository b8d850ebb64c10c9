public import Bucketing
public import JSON

/// An error of an operation of Holdfast, independent of the protocol. Each protocol renders it in its own format.
public struct CoreError: Error, Sendable {
    public enum Kind: Sendable {
        /// The input is malformed. HTTP: 400.
        case invalid
        /// The input exceeds a size limit. HTTP: 413.
        case tooLarge
        /// The input is well-formed, but conflicts with stored data or definitions. HTTP: 422.
        case unprocessable
        /// The caller may not use what the request names. HTTP: 403.
        case forbidden
        /// What the request names does not exist. HTTP: 404.
        case notFound
        /// The request contradicts the current state of what it changes. HTTP: 409.
        case conflict
        /// A precondition of the caller (`If-Match`, `If-None-Match`) does not hold. HTTP: 412.
        case preconditionFailed
        /// The store or the server is unavailable; a retry may succeed. HTTP: 503.
        case unavailable
        /// The outcome is unknown: the change may have been stored. HTTP: 504.
        case undecided
    }

    public var kind: Kind
    /// The message for people. It says what is required, and then what was found.
    public var detail: String
    /// The location of the wrong member in the input (RFC 6901); `nil` if the input is not at fault.
    public var pointer: JSONPointer?
    /// All wrong members, if the input was checked as a whole.
    public var faults: [JSONFault] = []
    /// Further members of the error's JSON, for programs.
    public var members: [(key: String, value: JSONValue)] = []
    /// Seconds after which the caller may retry.
    public var retryAfter: Int?
    /// Whether the cause is a missing definition, which another server may have stored a moment ago. The operation may
    /// succeed after the definitions have been read again.
    public var mayBeStale: Bool
    /// The section of the manual that explains the error; `nil` to choose it by status, route and ``pointer``.
    public var topic: Topic?

    /// A section of the manual about errors that any route and any member can cause.
    public enum Topic: Sendable, CaseIterable {
        /// Conditional requests (`If-Match`, `If-None-Match`).
        case conditions
        /// Changes that move users to another variation.
        case moves
        /// Ids that belong to another project.
        case sharedID
    }

    public init(
        _ kind: Kind, _ detail: String, at pointer: JSONPointer? = nil, mayBeStale: Bool = false,
        about topic: Topic? = nil
    ) {
        self.kind = kind
        self.detail = detail
        self.pointer = pointer
        self.mayBeStale = mayBeStale
        self.topic = topic
        if kind == .unavailable || kind == .undecided { retryAfter = 1 }
    }

    /// Describes a text that is not JSON.
    ///
    /// - Parameter name: the name of the text in the error, such as "the body".
    public init(_ error: JSONError, in name: String) {
        let line = error.line > 1 ? "line \(error.line), " : ""
        self.init(.invalid, "\(name) must be JSON: \(error.message) (\(line)byte \(error.offset))", at: error.pointer)
    }

    /// Describes wrong members of an input; `nil` if there are none.
    ///
    /// - Parameter consequence: the end of the detail, such as "nothing was stored".
    public init?(_ kind: Kind = .unprocessable, faults: [JSONFault], _ consequence: String) {
        guard let first = faults.first else { return nil }
        let detail = faults.count == 1 ? first.reason : "\(faults.count) members are wrong"
        self.init(kind, "\(detail); \(consequence)", at: first.pointer)
        self.faults = faults
    }

    /// Describes a name that has no definition on this server; see ``mayBeStale``.
    public static func undefined(_ detail: String, at pointer: JSONPointer? = nil) -> CoreError {
        CoreError(.notFound, detail, at: pointer, mayBeStale: true)
    }

    /// Describes an experiment that a datafile does not have, with the key that was probably meant.
    public static func undefinedExperiment(
        _ name: Identifier, in datafile: Datafile, at pointer: JSONPointer? = nil
    ) -> CoreError {
        // No hint for the elements of an array: a request with many would compare each of them with all keys.
        let depth = pointer?.string.utf8.count { $0 == UInt8(ascii: "/") } ?? 0
        let isInArray = depth > 1
        let hint = isInArray ? "" : Spelling.hint(for: name, among: datafile.experiments.lazy.map(\.key))
        return undefined("no experiment has the key or id '\(name)'\(hint)", at: pointer)
    }

    /// Describes a flag that a datafile does not have, with the key that was probably meant.
    public static func undefinedFlag(_ key: Identifier, in datafile: Datafile) -> CoreError {
        undefined("no flag has the key '\(key)'" + Spelling.hint(for: key, among: datafile.flags.lazy.map(\.key)))
    }

    /// The maximum length of a text that an error quotes, in bytes.
    public static let longestQuote = 64
}

extension CoreError: CustomStringConvertible {
    /// The detail and the pointer.
    public var description: String {
        guard let pointer, !pointer.string.isEmpty else { return detail }
        return "\(detail), at \(pointer)"
    }
}

extension String {
    /// Returns the text if it has at most `limit` bytes; otherwise its beginning with an ellipsis, within the limit.
    public func shortened(to limit: Int) -> String {
        guard utf8.count > limit else { return self }
        var end = utf8.index(startIndex, offsetBy: max(0, limit - "…".utf8.count))
        while end.samePosition(in: unicodeScalars) == nil { end = utf8.index(before: end) }
        return self[..<end] + "…"
    }
}
