import CSQLite

@testable import StorageSQLite

/// A database as some other program sees it: SQLite without anything of the store.
final class RawDatabase {
    struct Failure: Error {
        let message: String
    }

    private let handle: OpaquePointer

    init(_ path: String) throws {
        // Before SQLite is first used, whoever does.
        _ = Connection.isConfigured
        var handle: OpaquePointer?
        guard sqlite3_open(path, &handle) == SQLITE_OK, let handle else { throw Failure(message: path) }
        self.handle = handle
        // Opening a log that another connection closes at that moment takes turns.
        sqlite3_busy_timeout(handle, 10_000)
    }

    deinit {
        sqlite3_close_v2(handle)
    }

    func execute(_ sql: String) throws {
        guard sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK else {
            throw Failure(message: String(cString: sqlite3_errmsg(handle)))
        }
    }

    /// What `.restore` of the SQLite shell does.
    func restore(from path: String) throws {
        var source: OpaquePointer?
        defer { sqlite3_close_v2(source) }
        guard sqlite3_open(path, &source) == SQLITE_OK, let backup = sqlite3_backup_init(handle, "main", source, "main")
        else {
            throw Failure(message: "\(path) cannot be opened")
        }
        let code = sqlite3_backup_step(backup, -1)
        sqlite3_backup_finish(backup)
        guard code == SQLITE_DONE else { throw Failure(message: "\(path) was not restored: \(code)") }
    }

    /// The first column of the first row as text.
    func value(_ sql: String) throws -> String {
        var statement: OpaquePointer?
        defer { sqlite3_finalize(statement) }
        guard sqlite3_prepare_v2(handle, sql, -1, &statement, nil) == SQLITE_OK, sqlite3_step(statement) == SQLITE_ROW
        else { throw Failure(message: String(cString: sqlite3_errmsg(handle))) }
        return sqlite3_column_text(statement, 0).map { String(cString: $0) } ?? ""
    }
}
