import CSQLite
import CSQLiteSupport
import Glibc

/// A connection to a database file, for one thread or queue at a time.
final class Connection {
    enum Access {
        case read
        case write
        /// Writes, and appends to the write-ahead log in great pieces. Only with `synchronous = FULL`.
        case commit
        /// Writes, and makes the file if there is none.
        case create
    }

    /// At the first use; where something else of the process has begun to use SQLite, it stays as that has it.
    static let isConfigured: Bool =
        csqlite_do_not_count_memory() == SQLITE_OK && csqlite_use_bounded_page_cache() == SQLITE_OK

    private let handle: OpaquePointer
    /// Pages in the write-ahead log after the last commit of this connection; see ``countLogPages()``.
    private(set) var logPages = 0
    /// By the address of their text, which is a literal.
    private var statements: [UnsafePointer<UInt8>: Statement] = [:]
    private let busyHandler: BusyHandler
    private var logIndex: UnsafeMutableRawPointer?
    /// Whether a fresh connection should take its place.
    var isWorn = false

    /// - Parameter lockTimeout: how long a statement waits for a lock that another connection holds, in seconds.
    init(path: String, access: Access, lockTimeout: Double) throws(SQLiteError) {
        let mode =
            switch access {
            case .read: SQLITE_OPEN_READONLY
            case .write, .commit: SQLITE_OPEN_READWRITE
            case .create: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
            }
        _ = Self.isConfigured
        var handle: OpaquePointer?
        // NOMUTEX: no two threads use one connection at once.
        // SQLite gives some names a meaning of their own (":memory:"); one with a directory is always a file's.
        let file = path.hasPrefix("/") ? path : "./" + path
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
        // SQLite opens for reading what it may not write, and would say so at the first write only.
        if access != .read, sqlite3_db_readonly(handle, "main") == 1 {
            throw SQLiteError(code: SQLITE_READONLY, message: "this process may not write the file")
        }
    }

    deinit {
        statements.removeAll()
        sqlite3_close_v2(handle)
    }

    /// Runs statements that give no rows.
    func execute(_ sql: String) throws(SQLiteError) {
        let code = sqlite3_exec(handle, sql, nil, nil, nil)
        guard code == SQLITE_OK else { throw SQLiteError(handle, code) }
    }

    /// The statement for this text, prepared at its first use.
    func statement(_ sql: StaticString) throws(SQLiteError) -> Statement {
        if let known = statements[sql.utf8Start] { return known }
        let statement = try Statement.prepare(sql.description, on: handle)
        statements[sql.utf8Start] = statement
        return statement
    }

    /// The first column of the only row that a query gives.
    func integer(_ sql: StaticString) throws(SQLiteError) -> Int64 {
        var value: Int64 = 0
        try statement(sql).run(row: { value = $0.integer(0) })
        return value
    }

    /// Whether a transaction has begun and neither been committed nor rolled back, by us or by SQLite.
    var isInTransaction: Bool { sqlite3_get_autocommit(handle) == 0 }

    /// Rows that were inserted, updated or deleted since the connection was opened.
    var totalChanges: Int64 { sqlite3_total_changes64(handle) }

    /// Whether the last connection that is closed copies the write-ahead log into the database.
    func setCheckpointOnClose(_ isOn: Bool) {
        _ = csqlite_set_checkpoint_on_close(handle, isOn ? 1 : 0)
    }

    /// Keeps ``logPages`` up to date from now on; no commit of this connection copies the log any more.
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
        /// Copies what it can without waiting for anybody.
        case passive
        /// Waits for readers of the log, holding up writers, so that the next commit starts the log anew.
        case restart
    }

    /// Copies the write-ahead log into the database.
    ///
    /// - Parameter lockTimeout: how long it may wait, in seconds.
    /// - Returns: how many pages the log had at the beginning, and how many of them have been copied, now or before.
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

    /// Makes durable what has been copied into the database so far. A checkpoint does so itself only when it has copied
    /// all.
    func synchronizeDatabase() throws(SQLiteError) {
        guard let file = mainFile, let synchronize = file.pointee.pMethods?.pointee.xSync else { return }
        let code = synchronize(file, SQLITE_SYNC_NORMAL)
        // The connection knows nothing of it.
        guard code == SQLITE_OK else { throw SQLiteError(nil, code) }
    }

    /// Has the next checkpoint copy the whole log again, because what was copied may never reach the disk: after a failure
    /// Linux holds the pages to be clean, and synchronises without them from then on. As with ``watchLog()``, the
    /// connection must have read something.
    ///
    /// - Throws: ``SQLiteError`` that is busy while another connection copies the log.
    func forgetCopiedPages() throws(SQLiteError) {
        watchLog()
        guard let logIndex, let file = mainFile, let lock = file.pointee.pMethods?.pointee.xShmLock else {
            throw SQLiteError(code: SQLITE_IOERR, message: "the log's index is not to be had")
        }
        // Slot 1 of the index's locks is that of checkpoints: https://sqlite.org/walformat.html, section 2.3.
        let code = lock(file, 1, 1, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE)
        guard code == SQLITE_OK else { throw SQLiteError(code: code, message: "another connection copies the log") }
        csqlite_forget_copied_pages(logIndex)
        _ = lock(file, 1, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE)
    }

    /// What every commit to the database changes, by whatever process, before it is acknowledged; `nil` before
    /// ``watchLog()``.
    var logHeader: LogHeader? { logIndex.map { LogHeader(at: $0) } }

    /// Has ``logHeader`` told from now on, from SQLite's own mapping of the log's index. It lasts as long as the
    /// connection, which must have read something: only then SQLite knows of the log.
    func watchLog() {
        guard logIndex == nil, let file = mainFile, let map = file.pointee.pMethods?.pointee.xShmMap else { return }
        var mapping: UnsafeMutableRawPointer?
        if map(file, 0, 32_768, 0, &mapping) == SQLITE_OK { logIndex = mapping }
    }

    /// Commits the transaction that this connection writes in.
    ///
    /// - Returns: the log's header before this commit, and as it left it; that is `nil` when another commit came right
    ///   after it.
    func commit() throws(SQLiteError) -> (former: LogHeader?, header: LogHeader?) {
        // While this connection holds the lock of writers nobody else commits.
        let former = logHeader
        try statement("COMMIT").run()
        guard let former, let header = logHeader, header.isNext(after: former) else { return (former, nil) }
        return (former, header)
    }

    /// The last commit of whatever process; `nil` while others come too fast to tell. Not in a transaction.
    func lastCommit() throws(SQLiteError) -> Commit? {
        for _ in 0..<3 {
            let header = logHeader
            let number = try integer("SELECT commits FROM counters")
            if logHeader == header { return Commit(number: number, header: header) }
        }
        return nil
    }

    /// Pages that this connection has written, or tried to, since it was last asked.
    func takeWrittenPages() -> Int {
        var (pages, highest): (Int32, Int32) = (0, 0)
        sqlite3_db_status(handle, SQLITE_DBSTATUS_CACHE_WRITE, &pages, &highest, 1)
        return Int(pages)
    }

    /// Writes so many pages' worth of zeros behind the end of the log, where the next commits go and nobody reads before.
    /// Only in a transaction that may write, so that nobody commits meanwhile.
    ///
    /// - Throws: ``SQLiteError`` when there is no room for them, or something else keeps the log from growing.
    func extendLog(pages: Int) throws(SQLiteError) {
        var log: UnsafeMutablePointer<sqlite3_file>?
        guard let end = logHeader?.end, sqlite3_file_control(handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK,
            let log, let methods = log.pointee.pMethods?.pointee, let write = methods.xWrite, let size = methods.xFileSize
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
        // Also has written what is still being collected; see Access.commit.
        var reached: sqlite3_int64 = 0
        if code == SQLITE_OK { code = size(log, &reached) }
        guard code == SQLITE_OK else {
            _ = methods.xTruncate?(log, max(former, end.offset))
            // The connection knows nothing of it.
            throw SQLiteError(nil, code)
        }
    }

    private var mainFile: UnsafeMutablePointer<sqlite3_file>? {
        var file: UnsafeMutablePointer<sqlite3_file>?
        return sqlite3_file_control(handle, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK ? file : nil
    }

    /// The beginning of the file; `nil` when it is shorter.
    ///
    /// It is read through SQLite's own descriptor: closing another one of this file would drop the POSIX locks that
    /// all connections of this process hold on it.
    func firstBytes(_ count: Int) -> [UInt8]? {
        guard let file = mainFile, let read = file.pointee.pMethods?.pointee.xRead else { return nil }
        var bytes = [UInt8](repeating: 0, count: count)
        return read(file, &bytes, Int32(count), 0) == SQLITE_OK ? bytes : nil
    }
}

@available(*, unavailable) extension Connection: Sendable {}

/// Waits for locks in short sleeps: writers of several processes take turns, each for about a millisecond.
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
