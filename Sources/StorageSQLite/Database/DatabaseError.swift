import CSQLite
import Glibc

/// A database file that cannot be opened, and why. The file is as it was.
public struct DatabaseError: Error, Sendable, CustomStringConvertible {
    public let path: String
    public let reason: String

    init(_ path: String, _ reason: String) {
        self.path = path
        self.reason = reason
    }

    init(_ path: String, _ error: SQLiteError) {
        self.init(path, Self.reason(path, error))
    }

    private static func reason(_ path: String, _ error: SQLiteError) -> String {
        if error.isDamage { return "it is not a SQLite database, or it is damaged: \(error)" }
        guard error.primaryCode == SQLITE_CANTOPEN else { return "\(error)" }
        let directory = path.contains("/") ? String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)]) : "."
        if access(directory.isEmpty ? "/" : directory, F_OK) != 0 { return "there is no directory \(directory)" }
        return "it cannot be opened or made: \(error)"
    }

    public var description: String { "the database \(path) cannot be used: \(reason)" }
}
