import CPostgreSQL
import Storage

/// An error of the server, or of the connection to it.
struct PostgreSQLError: Error, CustomStringConvertible {
    /// The SQLSTATE; empty if the connection failed.
    let state: String
    let message: String

    init(state: String, message: String) {
        self.state = state
        self.message = message
    }

    /// An error of the connection.
    init(connection message: String) {
        self.init(state: "", message: message)
    }

    /// The error in a result of libpq.
    init(_ result: OpaquePointer) {
        state = cpostgresql_sqlstate(result).map { String(cString: $0) } ?? ""
        let text = cpostgresql_message(result) ?? PQresultErrorMessage(result)
        message = text.map { Self.line(String(cString: $0)) } ?? "the connection was lost"
    }

    /// Returns a message of libpq in one line. Its messages end with a line feed, and may have several lines.
    static func line(_ message: String) -> String {
        message.split(whereSeparator: \.isNewline).joined(separator: "; ")
    }

    /// The reaction that can make the operation succeed.
    enum Remedy {
        /// Another writer has changed a record since it was read: read and apply the rules again.
        case applyAgain
        /// Serialization failure or deadlock: run the same transaction again.
        case retry
        /// Reconnect; a failover may have made another server the primary.
        case reconnect
        case none
    }

    /// SQLSTATE of a version conflict: a row is no longer the one that was read. Statements of this module raise it by
    /// dividing by zero.
    static let versionConflict = "22012"

    /// SQLSTATE of a feature that is not supported. This module raises it for tables of a newer release, for example.
    static let unsupported = "0A000"

    /// SQLSTATE of a missing privilege of the role. Also raised by this module.
    static let insufficientPrivilege = "42501"

    /// The error for a server that still acts as primary although another one has become the primary of its cluster.
    static let leftBehind = PostgreSQLError(connection: "another server has become the primary")

    /// SQLSTATE of a lock that was not available within `lock_timeout`.
    static let lockNotAvailable = "55P03"

    /// SQLSTATE of a commit that may or may not be durable.
    static let outcomeUnknown = "40003"

    /// Returns the error for a commit that succeeded with a warning of the server.
    static func inDoubt(_ warning: String) -> PostgreSQLError {
        PostgreSQLError(state: outcomeUnknown, message: "the change may be lost: \(warning)")
    }

    /// The reaction to the error, by its SQLSTATE (https://www.postgresql.org/docs/15/errcodes-appendix.html).
    var remedy: Remedy {
        switch state {
        case Self.versionConflict: .applyAgain
        case "40001", "40P01": .retry
        // The server shuts down, crashed or starts up; it is read-only, such as a standby; a prepared statement is
        // unknown or exists already.
        case "", "57P01", "57P02", "57P03", "57P05", "25006", "26000", "42P05": .reconnect
        default: state.hasPrefix("08") ? .reconnect : .none
        }
    }

    /// Whether the fault may lie in the data of one change, so that others may succeed without it.
    var mayConcernOneChange: Bool {
        ["21", "22", "23", "54"].contains { state.hasPrefix($0) } && state != Self.versionConflict
    }

    /// Whether the error may come from one node of a distributed database, so that it does not concern all users. The
    /// connection itself still works.
    var mayConcernOneNode: Bool { state.hasPrefix("08") || state.hasPrefix("57P") }

    /// Whether the error concerns some users only, so that changes of others may succeed.
    func concernsSomeUsers(isDistributed: Bool) -> Bool {
        state == Self.lockNotAvailable || isDistributed && (mayConcernOneNode || state == Self.outcomeUnknown)
    }

    var description: String {
        state.isEmpty ? "the database cannot be reached: \(message)" : "\(message) (SQLSTATE \(state))"
    }

    /// The error that the store reports.
    var asStorageError: StorageError {
        switch state {
        // Caused by a text with NUL, the only text that JSON can contain and the database cannot store.
        case "22021", "22P05": .unstorable
        case "53100": .unavailable(reason: "the disk of the database is full")
        case "25006": .unavailable(reason: "the database is read-only; a primary is required")
        case "42P01", "42703", "3F000":
            .unavailable(reason: "the tables of the database are missing or of another release: \(message)")
        case "57014", "55P03": .unavailable(reason: "the database took too long: \(message)")
        case "40001", "40P01", Self.versionConflict: .overloaded
        default: .unavailable(reason: description)
        }
    }
}
