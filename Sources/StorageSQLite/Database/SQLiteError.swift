import CSQLite
import Glibc
import Storage

/// An error that SQLite reported.
struct SQLiteError: Error, CustomStringConvertible {
    /// The extended result code.
    let code: Int32
    let message: String

    init(code: Int32, message: String) {
        self.code = code
        self.message = message
    }

    /// Reads the last error of a connection.
    ///
    /// - Parameters:
    ///   - handle: the connection; `nil` for a call that bypassed the connection, which has no error message then.
    ///   - code: the result of the call.
    init(_ handle: OpaquePointer?, _ code: Int32) {
        self.code = handle.map { sqlite3_extended_errcode($0) } ?? code
        message = handle.map { String(cString: sqlite3_errmsg($0)) } ?? String(cString: sqlite3_errstr(code))
    }

    /// The result code without its extension.
    var primaryCode: Int32 { code & 0xFF }

    /// Whether another connection held a required lock.
    var isBusy: Bool { primaryCode == SQLITE_BUSY || primaryCode == SQLITE_LOCKED }

    /// Whether the file is not a database, or is damaged.
    var isDamage: Bool { primaryCode == SQLITE_NOTADB || primaryCode == SQLITE_CORRUPT }

    /// Whether a new connection may succeed where this one has failed. `false` for a lock, a full disk, and a file that
    /// is not the one that was opened.
    var asksForReopening: Bool { !isBusy && primaryCode != SQLITE_FULL && !concernsFiles }

    /// `SQLITE_READONLY_DBMOVED`, a macro that Swift does not import. The file in the place of the open one must not be
    /// opened, because the write-ahead log beside it belongs to the former file.
    static let fileHasMoved = SQLITE_READONLY | (4 << 8)

    /// The code for a file or log that was overwritten in place; see ``ContentsCheck``. Not a code of SQLite.
    static let fileWasOverwritten = SQLITE_READONLY | (200 << 8)

    /// Whether the file or its log was moved, replaced or overwritten.
    private var concernsFiles: Bool { code == Self.fileHasMoved || code == Self.fileWasOverwritten }

    var description: String { "\(message) (SQLite \(code))" }

    /// The error that the store reports.
    var asStorageError: StorageError {
        if concernsFiles { return .unavailable(reason: message) }
        return switch primaryCode {
        case SQLITE_BUSY, SQLITE_LOCKED: .unavailable(reason: "the database is locked by another process")
        case SQLITE_FULL: .unavailable(reason: "the disk or the database is full")
        case SQLITE_READONLY: .unavailable(reason: "the database is read-only: \(description)")
        default: .unavailable(reason: description)
        }
    }
}

extension DatabaseError {
    init(_ path: String, _ error: SQLiteError) {
        self.init(path, Self.reason(path, error), isPermanent: error.isDamage)
    }

    private static func reason(_ path: String, _ error: SQLiteError) -> String {
        if error.isDamage {
            return "it must be an undamaged SQLite database; \(error); 'holdfast restore' puts a backup in its place"
        }
        guard error.primaryCode == SQLITE_CANTOPEN else { return "\(error)" }
        let directory = path.contains("/") ? String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)]) : "."
        if access(directory.isEmpty ? "/" : directory, F_OK) != 0 {
            return "its directory must exist; \(directory) does not"
        }
        return "it cannot be opened or created: \(error)"
    }
}
