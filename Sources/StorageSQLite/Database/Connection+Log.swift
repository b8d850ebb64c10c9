import CSQLite
import Storage

/// Access to the files of SQLite that SQL does not give: the database file, its write-ahead log, and the log's index,
/// past SQLite's cache.
///
/// The log receives the pages of each commit (https://sqlite.org/walformat.html). A checkpoint copies these pages into
/// the database file. The index of the log is in shared memory. It records where the log ends, and how much of the log
/// is copied.
extension Connection {
    // MARK: The index of the log

    /// The header of the log's index; `nil` before ``watchLog()``. Every commit of any process changes the header
    /// before the commit is acknowledged.
    var logHeader: LogHeader? { logIndex.map { LogHeader(at: $0) } }

    /// How much of the log is copied into the database; `nil` before ``watchLog()``.
    var logCopying: LogCopying? {
        logIndex.map { LogCopying(salts: LogHeader(at: $0).salts, at: $0) }
    }

    /// Makes ``logHeader`` and ``logCopying`` available for the lifetime of the connection, from SQLite's own mapping
    /// of the log's index. Call it after a read, because SQLite opens the log at the first read.
    func watchLog() {
        guard logIndex == nil, let file = mainFile, let map = file.pointee.pMethods?.pointee.xShmMap else { return }
        var mapping: UnsafeMutableRawPointer?
        if map(file, 0, Self.indexRegionBytes, 0, &mapping) == SQLITE_OK { logIndex = mapping }
    }

    /// The size of the first part of the index, which has its header (`WALINDEX_PGSZ` in SQLite's wal.c).
    private static let indexRegionBytes: Int32 = 32_768

    // MARK: Commits

    /// Commits the open write transaction.
    ///
    /// - Returns: the log's header before this commit and after it. The second one is `nil` if another commit followed
    ///   at once, so that the header after this commit is unknown.
    func commit() throws(SQLiteError) -> (former: LogHeader?, header: LogHeader?) {
        // Nobody else commits while this connection holds the write lock.
        let former = logHeader
        try statement("COMMIT").run()
        guard let former, let header = logHeader, header.isNext(after: former) else { return (former, nil) }
        return (former, header)
    }

    /// Returns the last commit of any process, and the counter of project changes at that commit. Do not call it in a
    /// transaction, which would not see later commits.
    ///
    /// The commit is `nil` if other processes commit so fast that its number and the log's header, which are read one
    /// after the other, belong to different commits in each of three attempts.
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
        var pages: Int32 = 0
        var highest: Int32 = 0
        sqlite3_db_status(handle, SQLITE_DBSTATUS_CACHE_WRITE, &pages, &highest, 1)
        return Int(pages)
    }

    /// Writes pages of zeros after the end of the log, to find out whether the log can grow.
    ///
    /// The next commits overwrite these pages, and nobody reads them before. Call it in a write transaction only, so
    /// that nobody commits at the same time.
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
        // Asking for the size also writes the block that is still being collected; see Access.commit.
        var reached: sqlite3_int64 = 0
        if code == SQLITE_OK { code = size(log, &reached) }
        guard code == SQLITE_OK else {
            _ = methods.xTruncate?(log, max(former, end.offset))
            // The call bypassed the connection, which has no error message.
            throw SQLiteError(nil, code)
        }
    }

    // MARK: Checkpoints

    /// The modes of ``checkpoint(_:lockTimeout:)``.
    enum Checkpoint {
        /// Copies the pages that no reader needs any more, without waiting.
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
        var pages: Int32 = 0
        var copied: Int32 = 0
        let sqliteMode = mode == .passive ? SQLITE_CHECKPOINT_PASSIVE : SQLITE_CHECKPOINT_RESTART
        let code = sqlite3_wal_checkpoint_v2(handle, "main", sqliteMode, &pages, &copied)
        guard code == SQLITE_OK else { throw SQLiteError(handle, code) }
        return (Int(pages), Int(copied))
    }

    /// Syncs the database file, so that the pages copied so far are durable. A checkpoint itself syncs the file only if
    /// it has copied the whole log.
    func synchronizeDatabase() throws(SQLiteError) {
        guard let file = mainFile, let synchronize = file.pointee.pMethods?.pointee.xSync else { return }
        let code = synchronize(file, SQLITE_SYNC_NORMAL)
        // The call bypassed the connection, which has no error message.
        guard code == SQLITE_OK else { throw SQLiteError(nil, code) }
    }

    /// Makes the next checkpoint copy the whole log again. Call it after a read, like ``watchLog()``.
    ///
    /// Needed after a failed sync: Linux marks the copied pages clean although they were not written, and later syncs
    /// skip them, so they may never reach the disk.
    ///
    /// - Throws: a busy ``SQLiteError`` while another connection copies the log; another one if the log's index is not
    ///   accessible.
    func forgetCopiedPages() throws(SQLiteError) {
        watchLog()
        guard let logIndex, let file = mainFile, let lock = file.pointee.pMethods?.pointee.xShmLock else {
            throw SQLiteError(code: SQLITE_IOERR, message: "the index of the write-ahead log is not accessible")
        }
        let code = lock(file, Self.checkpointLock, 1, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE)
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: "another connection is copying the write-ahead log")
        }
        csqlite_forget_copied_pages(logIndex)
        _ = lock(file, Self.checkpointLock, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE)
    }

    /// The slot of the lock that a checkpoint holds: https://sqlite.org/walformat.html, section 2.3.
    private static let checkpointLock: Int32 = 1

    // MARK: Files

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

    /// Reads bytes of a file past SQLite's cache; `nil` if the file is shorter.
    ///
    /// Uses SQLite's own descriptor, because closing another descriptor of the file would release the POSIX locks of
    /// all connections in this process.
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

    /// Returns the size of the database file in bytes.
    func databaseSize() throws(SQLiteError) -> Int64 {
        var size: sqlite3_int64 = 0
        guard let file = mainFile, let measure = file.pointee.pMethods?.pointee.xFileSize else { return 0 }
        let code = measure(file, &size)
        guard code == SQLITE_OK else { throw SQLiteError(nil, code) }
        return size
    }

    /// Returns the number of the first page of the table `counters`.
    func rootOfCounters() throws(SQLiteError) -> Int64 {
        try integer("SELECT rootpage FROM sqlite_schema WHERE name = 'counters'")
    }
}
