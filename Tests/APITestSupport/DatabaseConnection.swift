import CSQLite

import ProcessTestSupport
@testable import StorageSQLite

/// Another program with the database file open.
package final class DatabaseConnection {
    private let handle: OpaquePointer

    package init(_ path: String) throws {
        var handle: OpaquePointer?
        // Tests of the store in this process have SQLite set up as the server has it, before it is first used.
        _ = Connection.isConfigured
        let code = sqlite3_open_v2(path, &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nil)
        guard code == SQLITE_OK, let handle else { throw TestFailure("\(path) cannot be opened: \(code)") }
        self.handle = handle
        sqlite3_busy_timeout(handle, 5_000)
    }

    deinit {
        sqlite3_close_v2(handle)
    }

    package func execute(_ sql: String) throws {
        let code = sqlite3_exec(handle, sql, nil, nil, nil)
        guard code == SQLITE_OK else { throw TestFailure("\(sql): \(String(cString: sqlite3_errmsg(handle)))") }
    }

    /// The first column of the first row of a query.
    package func text(_ sql: String) throws -> String {
        var statement: OpaquePointer?
        defer { sqlite3_finalize(statement) }
        guard sqlite3_prepare_v2(handle, sql, -1, &statement, nil) == SQLITE_OK, sqlite3_step(statement) == SQLITE_ROW,
            let text = sqlite3_column_text(statement, 0)
        else { throw TestFailure("\(sql): \(String(cString: sqlite3_errmsg(handle)))") }
        return String(cString: text)
    }
}
