/// A database file that cannot be opened, and why. The file is as it was.
public struct DatabaseError: Error, Sendable, CustomStringConvertible {
    public let path: String
    public let reason: String

    init(_ path: String, _ reason: String) {
        self.path = path
        self.reason = reason
    }

    init(_ path: String, _ error: SQLiteError) {
        self.init(path, error.isDamage ? "it is not a SQLite database, or it is damaged: \(error)" : "\(error)")
    }

    public var description: String { "the database \(path) cannot be used: \(reason)" }
}
