import CSQLite
import CSQLiteSupport
import Glibc
import Storage

/// A connection to a database file, used by one thread or queue at a time.
///
/// There are three ways to run a statement. Each statement is prepared once and kept, except those of ``prepare(_:)``:
///
/// - By a literal (``statement(_:)-(StaticString)``), for statements of this module.
/// - By a query (``run(_:row:)``), for statements that all stores have in common.
/// - By a text (``prepare(_:)``, ``execute(_:)``), for statements that are composed at run time.
///
/// Access to the write-ahead log is in `Connection+Log.swift`.
final class Connection {
    /// The rights of a connection.
    enum Access {
        /// Reads only.
        case read
        /// Reads the database file alone, without its write-ahead log, and takes no locks.
        case readWithoutLog
        /// Reads and writes.
        case write
        /// Writes, and appends to the write-ahead log in large blocks; requires `synchronous = FULL`.
        case commit
        /// Writes, and creates the file if it does not exist.
        case create
    }

    /// Disables SQLite's memory statistics at the first use, because all threads would share their lock. Has no effect
    /// if other code in the process has initialized SQLite before.
    static let isConfigured = csqlite_do_not_count_memory() == SQLITE_OK

    /// The connection of the C library.
    let handle: OpaquePointer
    /// The number of pages in the write-ahead log after this connection's last commit; see ``countLogPages()``.
    private(set) var logPages = 0
    /// The prepared statements of SQL literals, by the address of the literal.
    private var statements: [UnsafePointer<UInt8>: Statement] = [:]
    /// The prepared statements of queries, by name.
    private var queries: [String: Statement] = [:]
    /// The prepared INSERT statements.
    private var inserts: [StoredTable: Statement] = [:]
    let busyHandler: BusyHandler
    /// The index of the write-ahead log in shared memory; `nil` before ``watchLog()``.
    var logIndex: UnsafeMutableRawPointer?
    /// Whether a new connection should replace this one.
    var needsReopening = false

    /// - Parameter lockTimeout: how long a statement waits for a lock of another connection, in seconds.
    /// - Throws: ``SQLiteError`` if the file cannot be opened, or is write-protected and `access` includes writing.
    init(path: String, access: Access, lockTimeout: Double) throws(SQLiteError) {
        let mode =
            switch access {
            case .read: SQLITE_OPEN_READONLY
            case .readWithoutLog: SQLITE_OPEN_READONLY | SQLITE_OPEN_URI
            case .write, .commit: SQLITE_OPEN_READWRITE
            case .create: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
            }
        _ = Self.isConfigured
        var handle: OpaquePointer?
        // SQLite treats names such as ":memory:" specially; a path with a directory is always a file.
        var file = path.hasPrefix("/") ? path : "./" + path
        if access == .readWithoutLog { file = Self.immutableURI(file) }
        // NOMUTEX, because no two threads use one connection at the same time. EXRESCODE for extended result codes.
        let code = sqlite3_open_v2(
            file, &handle, mode | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
            access == .commit ? csqlite_log_vfs() : nil)
        guard code == SQLITE_OK, let handle else {
            let error = SQLiteError(handle, code)
            sqlite3_close_v2(handle)
            throw error
        }
        self.handle = handle
        busyHandler = BusyHandler(seconds: lockTimeout)
        busyHandler.install(on: handle)
        // SQLite silently opens a write-protected file for reading; the error would appear only at the first write.
        if mode & SQLITE_OPEN_READWRITE != 0, sqlite3_db_readonly(handle, "main") == 1 {
            throw SQLiteError(code: SQLITE_READONLY, message: "this process may not write the file")
        }
    }

    deinit {
        statements.removeAll()
        queries.removeAll()
        inserts.removeAll()
        sqlite3_close_v2(handle)
    }

    /// Returns the URI with which SQLite ignores the write-ahead log and takes no locks
    /// (https://sqlite.org/uri.html#uriimmutable).
    private static func immutableURI(_ path: String) -> String {
        let escaped = path.utf8.map { byte in
            let scalar = Unicode.Scalar(byte)
            if scalar.isASCII, !"%?# ".unicodeScalars.contains(scalar) { return String(scalar) }
            return "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
        }
        return "file:\(escaped.joined())?immutable=1"
    }

    /// Runs statements that return no rows.
    func execute(_ sql: String) throws(SQLiteError) {
        let code = sqlite3_exec(handle, sql, nil, nil, nil)
        guard code == SQLITE_OK else { throw SQLiteError(handle, code) }
    }

    /// Returns the statement of a literal, which is prepared at its first use.
    func statement(_ sql: StaticString) throws(SQLiteError) -> Statement {
        if let known = statements[sql.utf8Start] { return known }
        let statement = try Statement.prepare(sql.description, on: handle)
        statements[sql.utf8Start] = statement
        return statement
    }

    /// Returns the statement of a query, which is prepared at its first use. Queries are written with PostgreSQL's
    /// parameters (`$1`), which are replaced by SQLite's (`?1`).
    private func statement(_ query: SQLQuery) throws(SQLiteError) -> Statement {
        if let known = queries[query.name] {
            assert(known.sql == query.sql.replacing("$", with: "?"), "two statements are called \(query.name)")
            return known
        }
        let statement = try Statement.prepare(query.sql.replacing("$", with: "?"), on: handle)
        queries[query.name] = statement
        return statement
    }

    /// Runs the statement of a query and calls `row` for each row.
    func run(_ query: SQLQuery, row: (any Row) -> Void = { _ in }) throws(SQLiteError) {
        try statement(query).run {
            $0.bind(query.parameters)
        } row: { statement throws(SQLiteError) in
            row(statement)
        }
    }

    /// Runs the statement of a query and returns the decoded rows.
    ///
    /// - Parameter decode: returns `nil` for a row that is skipped.
    func all<Value>(_ query: SQLQuery, decode: (any Row) -> Value?) throws(SQLiteError) -> [Value] {
        var values: [Value] = []
        try run(query) { if let value = decode($0) { values.append(value) } }
        return values
    }

    /// Runs the INSERT, UPDATE or DELETE of a query and returns the number of affected rows.
    func change(_ query: SQLQuery) throws(SQLiteError) -> Int {
        try statement(query).change { $0.bind(query.parameters) }
    }

    /// Inserts a row; see ``StoredTable/conflict``.
    func insert(_ values: [SQLValue], into table: StoredTable) throws(SQLiteError) {
        if let known = inserts[table] { return try known.run { $0.bind(values) } }
        let verb =
            switch table.conflict {
            case .fails: "INSERT"
            case .keepsRow: "INSERT OR IGNORE"
            case .replacesRow: "INSERT OR REPLACE"
            }
        let columns = table.insertedColumns.map(\.name)
        let places = (1...columns.count).map { "?\($0)" }.joined(separator: ", ")
        let statement = try prepare(
            "\(verb) INTO \(table.rawValue) (\(columns.joined(separator: ", "))) VALUES (\(places))")
        inserts[table] = statement
        try statement.run { $0.bind(values) }
    }

    /// Runs the statements of one step of a query, in one snapshot.
    func read<Value>(_ reading: Reading<Value>) throws(SQLiteError) -> Result<Reading<Value>.Outcome, StorageError> {
        let needsSnapshot = reading.steps.count > 1 && !isInTransaction
        if needsSnapshot { try statement("BEGIN").run() }
        defer { if needsSnapshot { try? statement("COMMIT").run() } }
        for (query, take) in reading.steps { try run(query, row: take) }
        return Result { () throws(StorageError) in try reading.finish() }
    }

    /// Prepares a statement that is composed at run time. The connection does not keep it.
    func prepare(_ sql: String) throws(SQLiteError) -> Statement {
        try Statement.prepare(sql, on: handle)
    }

    /// Runs a statement and returns the decoded rows.
    ///
    /// - Parameter decode: returns `nil` for a row that is skipped.
    func all<Value>(
        _ sql: StaticString, _ parameters: SQLValue..., decode: (Statement) -> Value?
    ) throws(SQLiteError) -> [Value] {
        var values: [Value] = []
        try statement(sql).run {
            $0.bind(parameters)
        } row: { row throws(SQLiteError) in
            if let value = decode(row) { values.append(value) }
        }
        return values
    }

    /// Runs an INSERT, UPDATE or DELETE and returns the number of affected rows.
    @discardableResult
    func change(_ sql: StaticString, _ parameters: SQLValue...) throws(SQLiteError) -> Int {
        try statement(sql).change { $0.bind(parameters) }
    }

    /// Returns the first column of a query's only row.
    func integer(_ sql: StaticString) throws(SQLiteError) -> Int64 {
        var value: Int64 = 0
        try statement(sql).run(row: { value = $0.integer(0) })
        return value
    }

    /// Whether a transaction is open. After some errors SQLite has rolled the transaction back by itself.
    var isInTransaction: Bool { sqlite3_get_autocommit(handle) == 0 }

    /// Sets whether closing the last connection copies the write-ahead log into the database.
    func setCheckpointOnClose(_ isOn: Bool) {
        _ = csqlite_set_checkpoint_on_close(handle, isOn ? 1 : 0)
    }

    /// Keeps ``logPages`` up to date, and disables automatic checkpoints of this connection.
    func countLogPages() {
        sqlite3_wal_hook(
            handle,
            { connection, _, _, pages in
                guard let connection else { return SQLITE_OK }
                Unmanaged<Connection>.fromOpaque(connection).takeUnretainedValue().logPages = Int(pages)
                return SQLITE_OK
            }, Unmanaged.passUnretained(self).toOpaque())
    }
}

@available(*, unavailable) extension Connection: Sendable {}

/// Waits for locks in short sleeps, because the writers of several processes alternate about every millisecond.
/// SQLite's own handler would sleep for up to 100 milliseconds.
final class BusyHandler {
    /// How long a statement waits for a lock, in seconds.
    var seconds: Double
    /// When the wait for the present lock began.
    private var start = timespec()
    /// The number of short sleeps before the long ones.
    private static let shortSleeps = 10
    /// The length of a short sleep, in microseconds.
    private static let shortSleep: UInt32 = 200
    /// The length of a long sleep, in microseconds.
    private static let longSleep: UInt32 = 2_000

    init(seconds: Double) {
        self.seconds = seconds
    }

    func install(on handle: OpaquePointer) {
        let context = Unmanaged.passUnretained(self).toOpaque()
        sqlite3_busy_handler(
            handle,
            { context, calls in
                guard let context else { return 0 }
                return Unmanaged<BusyHandler>.fromOpaque(context).takeUnretainedValue().wait(calls: calls) ? 1 : 0
            }, context)
    }

    /// Sleeps before the next attempt.
    ///
    /// - Parameter calls: how many times SQLite has called before for the same lock.
    /// - Returns: `false` if the time is over, so that the statement fails.
    private func wait(calls: Int32) -> Bool {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        if calls == 0 { start = now }
        let elapsed = Double(now.tv_sec - start.tv_sec) + Double(now.tv_nsec - start.tv_nsec) / 1e9
        guard elapsed < seconds else { return false }
        usleep(calls < Self.shortSleeps ? Self.shortSleep : Self.longSleep)
        return true
    }
}
