import CSQLite
import CSQLiteSupport
import Glibc
import Storage

/// A connection to a database file, used by one thread or queue at a time.
final class Connection {
    enum Access {
        case read
        /// Reads the database file as it is without its write-ahead log, and takes no locks.
        case readWithoutLog
        case write
        /// Writes, and appends to the write-ahead log in large blocks; requires `synchronous = FULL`.
        case commit
        /// Writes, and creates the file if it does not exist.
        case create
    }

    /// Configures SQLite at its first use. Has no effect if something else in the process has initialized SQLite before.
    static let isConfigured = csqlite_do_not_count_memory() == SQLITE_OK

    private let handle: OpaquePointer
    /// The number of pages in the write-ahead log after this connection's last commit; see ``countLogPages()``.
    private(set) var logPages = 0
    /// Keyed by the address of the SQL text, which is a literal.
    private var statements: [UnsafePointer<UInt8>: Statement] = [:]
    /// Keyed by the name of the query.
    private var queries: [String: Statement] = [:]
    private var inserts: [StoredTable: Statement] = [:]
    private let busyHandler: BusyHandler
    private var logIndex: UnsafeMutableRawPointer?
    /// Whether a new connection should replace this one.
    var needsReopening = false

    /// - Parameter lockTimeout: how long a statement waits for a lock of another connection, in seconds.
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
        // NOMUTEX: no two threads use one connection at the same time.
        // SQLite treats names such as ":memory:" specially; a path with a directory is always a file.
        var file = path.hasPrefix("/") ? path : "./" + path
        if access == .readWithoutLog { file = Self.immutableURI(file) }
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

    /// Returns the statement for this text, which is prepared at its first use.
    func statement(_ sql: StaticString) throws(SQLiteError) -> Statement {
        if let known = statements[sql.utf8Start] { return known }
        let statement = try Statement.prepare(sql.description, on: handle)
        statements[sql.utf8Start] = statement
        return statement
    }

    /// Returns the statement of a query, which is prepared at its first use.
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

    /// Runs the statements of a reading, in one snapshot.
    func read<Value>(_ reading: Reading<Value>) throws(SQLiteError) -> Result<Reading<Value>.Outcome, StorageError> {
        let needsSnapshot = reading.steps.count > 1 && !isInTransaction
        if needsSnapshot { try statement("BEGIN").run() }
        defer { if needsSnapshot { try? statement("COMMIT").run() } }
        for (query, take) in reading.steps { try run(query, row: take) }
        return Result { () throws(StorageError) in try reading.finish() }
    }

    /// Returns a new statement for a text that is put together.
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

    /// Whether a transaction is open; SQLite itself rolls back after some errors.
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

    enum Checkpoint {
        /// Copies what it can without waiting.
        case passive
        /// Blocks writers and waits for readers of the log, so that the next commit restarts the log.
        case restart
    }

    /// Copies the write-ahead log into the database.
    ///
    /// - Parameter lockTimeout: how long it may wait, in seconds.
    /// - Returns: the number of pages in the log at the start, and how many of them have been copied by now.
    func checkpoint(
        _ mode: Checkpoint, lockTimeout: Double = 0
    ) throws(SQLiteError) -> (pages: Int, copied: Int) {
        let usual = busyHandler.seconds
        busyHandler.seconds = lockTimeout
        defer { busyHandler.seconds = usual }
        var (pages, copied): (Int32, Int32) = (0, 0)
        let sqliteMode = mode == .passive ? SQLITE_CHECKPOINT_PASSIVE : SQLITE_CHECKPOINT_RESTART
        let code = sqlite3_wal_checkpoint_v2(handle, "main", sqliteMode, &pages, &copied)
        guard code == SQLITE_OK else { throw SQLiteError(handle, code) }
        return (Int(pages), Int(copied))
    }

    /// Syncs the database file, so that the pages copied so far are durable. A checkpoint does so only if it copied all.
    func synchronizeDatabase() throws(SQLiteError) {
        guard let file = mainFile, let synchronize = file.pointee.pMethods?.pointee.xSync else { return }
        let code = synchronize(file, SQLITE_SYNC_NORMAL)
        // The call bypassed the connection, which has no error message.
        guard code == SQLITE_OK else { throw SQLiteError(nil, code) }
    }

    /// Makes the next checkpoint copy the whole log again, because copied pages may never reach the disk: after a failed
    /// sync Linux marks them clean, and later syncs skip them. As with ``watchLog()``, the connection must have read
    /// something before.
    ///
    /// - Throws: a busy ``SQLiteError`` while another connection copies the log.
    func forgetCopiedPages() throws(SQLiteError) {
        watchLog()
        guard let logIndex, let file = mainFile, let lock = file.pointee.pMethods?.pointee.xShmLock else {
            throw SQLiteError(code: SQLITE_IOERR, message: "the index of the write-ahead log is not accessible")
        }
        // Lock slot 1 is the checkpoint lock: https://sqlite.org/walformat.html, section 2.3.
        let code = lock(file, 1, 1, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE)
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: "another connection is copying the write-ahead log")
        }
        csqlite_forget_copied_pages(logIndex)
        _ = lock(file, 1, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE)
    }

    /// The header of the log's index, which every commit of any process changes before it is acknowledged; `nil` before
    /// ``watchLog()``.
    var logHeader: LogHeader? { logIndex.map { LogHeader(at: $0) } }

    /// How much of the log is in the database; `nil` before ``watchLog()``.
    var logCopying: LogCopying? {
        logIndex.map { LogCopying(salts: LogHeader(at: $0).salts, at: $0) }
    }

    /// Makes ``logHeader`` available, from SQLite's own mapping of the log's index, for the lifetime of the connection. The
    /// connection must have read something before: only then has SQLite opened the log.
    func watchLog() {
        guard logIndex == nil, let file = mainFile, let map = file.pointee.pMethods?.pointee.xShmMap else { return }
        var mapping: UnsafeMutableRawPointer?
        if map(file, 0, 32_768, 0, &mapping) == SQLITE_OK { logIndex = mapping }
    }

    /// Commits the open write transaction.
    ///
    /// - Returns: the log's header before and after this commit; the latter is `nil` if another commit followed at once.
    func commit() throws(SQLiteError) -> (former: LogHeader?, header: LogHeader?) {
        // Nobody else commits while this connection holds the write lock.
        let former = logHeader
        try statement("COMMIT").run()
        guard let former, let header = logHeader, header.isNext(after: former) else { return (former, nil) }
        return (former, header)
    }

    /// Returns the last commit of any process, `nil` while commits come too fast to tell, and the number of changes of
    /// projects by then. Do not call it in a transaction.
    func lastCommit() throws(SQLiteError) -> (commit: Commit?, projectChanges: Int64) {
        var counters: (commits: Int64, projectChanges: Int64) = (0, 0)
        for _ in 0..<3 {
            let header = logHeader
            try statement("SELECT commits, project_changes FROM counters").run(row: {
                counters = ($0.integer(0), $0.integer(1))
            })
            if logHeader == header {
                return (Commit(number: counters.commits, header: header), counters.projectChanges)
            }
        }
        return (nil, counters.projectChanges)
    }

    /// Returns the number of pages that this connection wrote, or tried to write, since the last call.
    func takeWrittenPages() -> Int {
        var (pages, highest): (Int32, Int32) = (0, 0)
        sqlite3_db_status(handle, SQLITE_DBSTATUS_CACHE_WRITE, &pages, &highest, 1)
        return Int(pages)
    }

    /// Writes pages of zeros after the end of the log, where the next commits go and nobody reads. Call it in a write
    /// transaction only, so that nobody commits at the same time.
    ///
    /// - Throws: ``SQLiteError`` if the log cannot grow, for example because the disk is full.
    func extendLog(pages: Int) throws(SQLiteError) {
        guard let end = logHeader?.end, let log = logFile, let methods = log.pointee.pMethods?.pointee,
            let write = methods.xWrite,
            let size = methods.xFileSize
        else { return }
        var former: sqlite3_int64 = 0
        var code = size(log, &former)
        let zeros = [UInt8](repeating: 0, count: 64 << 10)
        let goal = end.offset + sqlite3_int64(pages) * end.frameSize
        var offset = end.offset
        while code == SQLITE_OK, offset < goal {
            let count = min(goal - offset, sqlite3_int64(zeros.count))
            code = write(log, zeros, Int32(count), offset)
            offset += count
        }
        // Also flushes the block that is still being collected; see Access.commit.
        var reached: sqlite3_int64 = 0
        if code == SQLITE_OK { code = size(log, &reached) }
        guard code == SQLITE_OK else {
            _ = methods.xTruncate?(log, max(former, end.offset))
            // The call bypassed the connection, which has no error message.
            throw SQLiteError(nil, code)
        }
    }

    private var mainFile: UnsafeMutablePointer<sqlite3_file>? { file(SQLITE_FCNTL_FILE_POINTER) }
    private var logFile: UnsafeMutablePointer<sqlite3_file>? { file(SQLITE_FCNTL_JOURNAL_POINTER) }

    private func file(_ control: Int32) -> UnsafeMutablePointer<sqlite3_file>? {
        var file: UnsafeMutablePointer<sqlite3_file>?
        return sqlite3_file_control(handle, "main", control, &file) == SQLITE_OK ? file : nil
    }

    /// A file that this connection has open.
    enum File {
        case database
        case log
    }

    /// Returns bytes of a file as they are there, past SQLite's cache; `nil` if the file is shorter.
    ///
    /// They are read through SQLite's own descriptor: closing another descriptor of the file would release the POSIX locks
    /// of all connections in this process.
    func bytes(_ count: Int, at offset: Int64, of file: File) throws(SQLiteError) -> [UInt8]? {
        guard let file = file == .log ? logFile : mainFile, let read = file.pointee.pMethods?.pointee.xRead else {
            return nil
        }
        var bytes = [UInt8](repeating: 0, count: count)
        let code = read(file, &bytes, Int32(count), offset)
        // The call bypassed the connection, which has no error message.
        guard code == SQLITE_OK || code == Self.shortRead else { throw SQLiteError(nil, code) }
        return code == SQLITE_OK ? bytes : nil
    }

    /// `SQLITE_IOERR_SHORT_READ`, a macro that Swift does not import.
    private static let shortRead = SQLITE_IOERR | (2 << 8)

    /// The size of the database file in bytes.
    func databaseSize() throws(SQLiteError) -> Int64 {
        var size: sqlite3_int64 = 0
        guard let file = mainFile, let measure = file.pointee.pMethods?.pointee.xFileSize else { return 0 }
        let code = measure(file, &size)
        guard code == SQLITE_OK else { throw SQLiteError(nil, code) }
        return size
    }

    /// The number of the first page of the table `counters`.
    func rootOfCounters() throws(SQLiteError) -> Int64 {
        try integer("SELECT rootpage FROM sqlite_schema WHERE name = 'counters'")
    }
}

@available(*, unavailable) extension Connection: Sendable {}

/// Waits for locks in short sleeps: the writers of several processes alternate, each for about a millisecond.
private final class BusyHandler {
    var seconds: Double
    private var start = timespec()

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

    private func wait(calls: Int32) -> Bool {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        if calls == 0 { start = now }
        let elapsed = Double(now.tv_sec - start.tv_sec) + Double(now.tv_nsec - start.tv_nsec) / 1e9
        guard elapsed < seconds else { return false }
        usleep(calls < 10 ? 200 : 2_000)
        return true
    }
}
