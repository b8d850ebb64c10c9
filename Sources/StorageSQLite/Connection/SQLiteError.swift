import CSQLite
import Storage

/// What SQLite answered instead of doing what it was asked.
struct SQLiteError: Error, CustomStringConvertible {
    /// The extended result code.
    let code: Int32
    let message: String

    init(code: Int32, message: String) {
        self.code = code
        self.message = message
    }

    init(_ handle: OpaquePointer?, _ code: Int32) {
        self.code = handle.map { sqlite3_extended_errcode($0) } ?? code
        message = handle.map { String(cString: sqlite3_errmsg($0)) } ?? String(cString: sqlite3_errstr(code))
    }

    var primaryCode: Int32 { code & 0xFF }

    /// Whether another connection holds the lock that was needed.
    var isBusy: Bool { primaryCode == SQLITE_BUSY || primaryCode == SQLITE_LOCKED }

    /// Whether the file is no database, or a damaged one.
    var isDamage: Bool { primaryCode == SQLITE_NOTADB || primaryCode == SQLITE_CORRUPT }

    /// Whether a fresh connection may do better than this one.
    var asksForReopening: Bool { !isBusy && primaryCode != SQLITE_FULL && code != Self.fileHasMoved }

    /// `SQLITE_READONLY_DBMOVED`, a macro that Swift does not import. A file that took the place of the one that was
    /// opened must not be opened in turn: the write-ahead log beside it belongs to the former.
    static let fileHasMoved = SQLITE_READONLY | (4 << 8)

    var description: String { "\(message) (SQLite \(code))" }

    /// The error as those who use a store see it.
    var asStorageError: StorageError {
        if code == Self.fileHasMoved { return .unavailable(reason: message) }
        return switch primaryCode {
        case SQLITE_BUSY, SQLITE_LOCKED: .unavailable(reason: "the database is locked by another process")
        case SQLITE_FULL: .unavailable(reason: "the disk or the database is full")
        case SQLITE_READONLY: .unavailable(reason: "the database is read-only: \(description)")
        default: .unavailable(reason: description)
        }
    }
}
