import Glibc
import Storage
import Synchronization

/// Detects that the database or its write-ahead log was overwritten in place, for example by `cp backup holdfast.db`
/// while a server runs. The files keep their identity then, and SQLite would continue to write into them.
///
/// The check of the log (``LogHeader`` is its index in shared memory, which overwriting the log does not change):
///
/// - The header of the log must have the salts of the index. The last frame must have the checksum of the index.
/// - A log that is copied into the database completely is not checked, because nobody reads it any more.
///
/// The check of the database file, which only checkpoints may change:
///
/// - While the index shows no checkpoint since the last check, and nothing is left to copy, the header, the size and
///   the page of the table `counters` must stay the same.
/// - After a checkpoint, the file must not be shorter. The number of its last commit must be higher than before, but
///   not higher than the number in the database with its log.
///
/// Checkpoints and restarts of the log by other processes meet these conditions, too. Once a difference is found, the
/// store neither reads nor writes until the server is restarted.
final class ContentsCheck: Sendable {
    /// The state of the database file, without its log, at one check.
    private struct FileState {
        var size: Int64
        var header: [UInt8]
        /// The page of the table `counters`, which has the number of the last commit.
        var page: [UInt8]
        /// The number of the last commit in the file; `nil` after `VACUUM`, until a checkpoint has copied ``page``.
        var commit: Int64?
        /// The number of ``page``.
        var root: Int64
        /// How much of the log was copied after the file was read.
        var copying: LogCopying
        /// Whether no checkpoint was under way while the file was read.
        var isSettled: Bool

        /// The bytes of the header that change with the schema, the "schema cookie".
        static let schemaBytes = 40..<44

        var schema: ArraySlice<UInt8> { header[Self.schemaBytes] }

        func hasSameContents(as other: FileState) -> Bool {
            size == other.size && header == other.header && page == other.page
        }
    }

    /// The number of attempts, a millisecond apart, that must all find a difference. A single one proves nothing: a
    /// checkpoint of another process may write the pages while they are read.
    private static let tries = 4

    private let path: String
    /// The state at the last check; `nil` before the first one.
    private let lastState = Mutex<FileState?>(nil)
    /// The error of the check that found a difference.
    private let difference = Mutex<SQLiteError?>(nil)
    /// Whether there is a ``difference``. Cheaper to read.
    private let isOverwritten = Atomic<Bool>(false)

    init(path: String) {
        self.path = path
    }

    /// Repeats the result of earlier checks, without a new one. Cheap enough for each read.
    ///
    /// - Throws: the ``SQLiteError`` of the check that found a difference.
    func expectNoDifference() throws(SQLiteError) {
        guard isOverwritten.load(ordering: .relaxed) else { return }
        if let difference = difference.withLock({ $0 }) { throw difference }
    }

    /// Checks the contents of the files.
    ///
    /// - Throws: ``SQLiteError/fileWasOverwritten`` if a file was changed by another program.
    func expectUnchanged(on connection: Connection) throws(SQLiteError) {
        try expectNoDifference()
        var tries = 0
        while let problem = try problem(on: connection) {
            tries += 1
            guard tries == Self.tries else {
                usleep(1_000)
                continue
            }
            let error = SQLiteError(
                code: SQLiteError.fileWasOverwritten,
                message:
                    "\(path) and its write-ahead log must not be overwritten while they are open; \(problem). Nothing is "
                    + "read or written any more, and the log stays as it is: stop the servers, keep a copy of \(path)-wal, "
                    + "and put a backup in place with 'holdfast restore --database \(path) BACKUP'")
            difference.withLock { $0 = error }
            isOverwritten.store(true, ordering: .relaxed)
            throw error
        }
    }

    /// Describes how the files contradict what SQLite has written; `nil` if they do not.
    private func problem(on connection: Connection) throws(SQLiteError) -> String? {
        if let problem = try logProblem(on: connection) { return problem }
        return try databaseProblem(on: connection)
    }

    // MARK: The log

    /// Describes how the log contradicts its index; `nil` if it does not.
    private func logProblem(on connection: Connection) throws(SQLiteError) -> String? {
        while let header = connection.logHeader, let copying = connection.logCopying, header.frames > copying.copied {
            let problem = try Self.contradiction(of: header, on: connection)
            // Another process may have restarted the log meanwhile.
            if connection.logHeader == header { return problem }
        }
        return nil
    }

    /// Describes how the log contradicts a header of its index; `nil` if it does not.
    private static func contradiction(
        of header: LogHeader, on connection: Connection
    ) throws(SQLiteError) -> String? {
        // The log begins with a header of 32 bytes, and each frame with one of 24 bytes. The offsets of the salts and
        // checksums are in https://sqlite.org/walformat.html, section 1.
        let end = header.end
        guard let start = try connection.bytes(32, at: 0, of: .log),
            let last = try connection.bytes(24, at: end.offset - end.frameSize, of: .log)
        else { return "the log is shorter than what was committed to it" }
        guard start[16..<24].elementsEqual(header.salts), last[8..<16].elementsEqual(header.salts),
            last.bigEndian(at: 16) == header.checksum.0, last.bigEndian(at: 20) == header.checksum.1
        else { return "the log is another than the one that was committed to" }
        return nil
    }

    // MARK: The database

    /// Describes how the database file contradicts the last check; `nil` if it does not.
    private func databaseProblem(on connection: Connection) throws(SQLiteError) -> String? {
        let former = lastState.withLock { $0 }
        var now: FileState
        switch try Self.readState(after: former, on: connection) {
        case .state(let state): now = state
        case .problem(let problem): return problem
        case .unknown: return nil
        }
        if let former, former.schema == now.schema {
            if let problem = Self.forbiddenChange(from: former, to: now, on: connection) { return problem }
            if now.hasSameContents(as: former) {
                if former.copying != now.copying || former.isSettled != now.isSettled { store(now) }
                return nil
            }
        }
        if let problem = try Self.updateCommit(of: &now, after: former, on: connection) { return problem }
        store(now)
        return nil
    }

    private func store(_ state: FileState) {
        lastState.withLock { $0 = state }
    }

    /// The result of reading the database file.
    private enum Finding {
        case state(FileState)
        /// The file is certainly not the one that was opened.
        case problem(String)
        /// The index of the log is not accessible.
        case unknown
    }

    /// Reads the state of the file, except for the number of its last commit.
    private static func readState(
        after former: FileState?, on connection: Connection
    ) throws(SQLiteError) -> Finding {
        // The state of checkpoints is read both before and after the pages: a checkpoint changes it before it writes,
        // and may have ended when the pages are read.
        let copyingBefore = connection.logCopying
        guard let header = try connection.bytes(DatabaseHeader.length, at: 0, of: .database) else {
            return .problem("the database was emptied")
        }
        guard let parsed = DatabaseHeader(header), parsed.applicationID == DatabaseFile.applicationID else {
            return .problem("the file is not a Holdfast database any more")
        }
        guard parsed.usesLog else {
            return .problem("the database was replaced by one written without a log, as backups are")
        }
        let root: Int64
        if let former, former.schema == header[FileState.schemaBytes] {
            root = former.root
        } else {
            root = try connection.rootOfCounters()
        }
        let size = try connection.databaseSize()
        let pageSize = Int64(parsed.pageSize)
        guard let page = try connection.bytes(Int(pageSize), at: (root - 1) * pageSize, of: .database) else {
            return .problem("the database is shorter than before")
        }
        guard let copying = connection.logCopying else { return .unknown }
        return .state(
            FileState(
                size: size, header: header, page: page, commit: former?.commit, root: root, copying: copying,
                isSettled: copying == copyingBefore && copying.isComplete))
    }

    /// Describes a change of a file with the same schema that no checkpoint can have made; `nil` if there is none.
    private static func forbiddenChange(
        from former: FileState, to now: FileState, on connection: Connection
    ) -> String? {
        guard now.size >= former.size else { return "the database is shorter than before" }
        // While frames are left to copy, the file may have more pages than the index says, because the count of copied
        // pages is reset after a failed sync.
        let isAllCopied =
            connection.logHeader.map { $0.salts == now.copying.salts && $0.frames == now.copying.copied } ?? false
        let hadNoCheckpoint = former.isSettled && former.copying == now.copying
        if hadNoCheckpoint, isAllCopied, !now.hasSameContents(as: former) {
            return "the database was changed by something else than SQLite"
        }
        return nil
    }

    /// Sets the number of the last commit in the file, if the page of the counters has changed.
    ///
    /// - Returns: how the number contradicts the last check, or the database with its log; `nil` if it does not.
    private static func updateCommit(
        of now: inout FileState, after former: FileState?, on connection: Connection
    ) throws(SQLiteError) -> String? {
        guard former?.page != now.page || now.commit == nil else { return nil }
        let isSameSchema = former?.schema == now.schema
        now.commit = CountersPage.commits(in: now.page)
        guard let commit = now.commit else {
            return isSameSchema ? "the database was changed by something else than SQLite" : nil
        }
        if let known = former?.commit, commit <= known, isSameSchema {
            return "the database ended with commit \(known), and now ends with commit \(commit)"
        }
        let newest = try connection.integer("SELECT commits FROM counters")
        guard commit <= newest else {
            return "the database ends with commit \(commit), though the last one is \(newest)"
        }
        return nil
    }
}

/// Decodes the page of the table `counters` in the database file
/// (https://www.sqlite.org/fileformat.html#b_tree_pages). Not with SQL, which would read the newer page in the log.
enum CountersPage {
    /// Returns the number of the last commit; `nil` if the page is of another kind.
    static func commits(in page: [UInt8]) -> Int64? {
        // The page is a leaf of a table with one row. The position of the row follows the header of the page.
        guard page.count >= 512, page[0] == 0x0D, page[3] == 0, page[4] == 1 else { return nil }
        var offset = Int(page[8]) << 8 | Int(page[9])
        /// Reads a varint of at most four bytes at `offset`: seven bits in each byte, and a bit that means "more
        /// follow".
        func variableInteger() -> Int? {
            var value = 0
            for _ in 0..<4 {
                guard offset < page.count else { return nil }
                let byte = page[offset]
                offset += 1
                value = value << 7 | Int(byte & 0x7F)
                if byte < 0x80 { return value }
            }
            return nil
        }
        // The row begins with its length and its number.
        guard variableInteger() != nil, variableInteger() == 1 else { return nil }
        let start = offset
        // The record's header has its own length and the type of each column. The type of `id` is 0, because the row's
        // number stands for it; `commits` is the next column.
        guard let length = variableInteger(), variableInteger() == 0, let type = variableInteger() else { return nil }
        // The sizes of integers by type. Type 7 is a double; types 8 and 9 are the numbers 0 and 1.
        let sizes = [0, 1, 2, 3, 4, 6, 8, nil, 0, 0]
        guard sizes.indices.contains(type), let size = sizes[type], start + length + size <= page.count else {
            return nil
        }
        if type > 7 { return Int64(type - 8) }
        // A signed integer, most significant byte first.
        let bytes = page[start + length..<start + length + size]
        return bytes.reduce(bytes.first.map { $0 > 0x7F ? -1 : 0 } ?? 0) { $0 << 8 | Int64($1) }
    }
}
