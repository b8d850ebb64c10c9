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

    /// The reaction with which the operation may succeed.
    enum Remedy {
        /// Read and apply the rules again, because another writer has changed a record since it was read.
        case applyAgain
        /// Run the same transaction again, after a serialization failure or a deadlock.
        case retry
        /// Reconnect, because a failover may have made another server the primary.
        case reconnect
        case none
    }

    /// SQLSTATE of a version conflict: a row has changed since it was read. Statements of this module raise the error
    /// by dividing by zero, which aborts the transaction without another round trip.
    static let versionConflict = "22012"

    /// SQLSTATE of a feature that is not supported. Also used by this module, for example for tables of a newer
    /// release.
    static let unsupported = "0A000"

    /// SQLSTATE of a missing privilege of the role. Also used by this module.
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

    /// Whether the data of one change may be the cause, so that other changes may succeed without it. The classes are
    /// those of wrong cardinality (21), invalid data (22), violated constraints (23), and exceeded limits (54).
    var mayConcernOneChange: Bool {
        ["21", "22", "23", "54"].contains { state.hasPrefix($0) } && state != Self.versionConflict
    }

    /// Whether the error may come from one node of a distributed database. Then it does not concern all users, and the
    /// connection itself still works. Nodes fail with the SQLSTATEs of lost connections (08) and of servers that stop
    /// or start (57P).
    var mayConcernOneNode: Bool { state.hasPrefix("08") || state.hasPrefix("57P") }

    /// Whether the error concerns some users only, so that changes of other users may succeed.
    func concernsSomeUsers(isDistributed: Bool) -> Bool {
        if state == Self.lockNotAvailable { return true }
        return isDistributed && (mayConcernOneNode || state == Self.outcomeUnknown)
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
