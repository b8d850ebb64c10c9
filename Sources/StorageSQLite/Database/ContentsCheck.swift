import Glibc
import Storage
import Synchronization

/// Detects that the database or its write-ahead log was overwritten in place, for example by `cp backup holdfast.db`
/// while a server runs. The files keep their identity then, and SQLite would continue to write into them.
///
/// - The log must have the salts of the log's index in its header, and the checksum of the index in its last frame. The
///   index is in memory, so overwriting the log does not change it. A log that was copied completely is not checked,
///   because nobody reads it any more.
/// - The database may be changed by checkpoints only. While the index shows no checkpoint since the last check, and the
///   log has no more to copy, the header, the size and the page of `counters` must be the same. After a checkpoint, the
///   file must not be shorter, and its last commit must be later than before, but not later than the last commit of
///   all. Checkpoints and restarts of the log by other processes comply with this, too.
///
/// Once a difference is found, nothing is read or written any more until the server is restarted.
final class ContentsCheck: Sendable {
    /// The state of the database file at the last check.
    private struct Seen {
        var size: Int64
        var header: [UInt8]
        /// The page of the table `counters`, which has the number of the last commit.
        var page: [UInt8]
        /// The number of the last commit in the file; `nil` after `VACUUM`, until the page is copied.
        var commit: Int64?
        var root: Int64
        var copying: LogCopying
        /// Whether no checkpoint was under way while the file was read.
        var isSettled: Bool

        var schema: ArraySlice<UInt8> { header[40..<44] }
    }

    /// How often a check is repeated, because a checkpoint of another process may write the pages while they are read.
    private static let tries = 4

    private let path: String
    private let seen = Mutex<Seen?>(nil)
    private let difference = Mutex<SQLiteError?>(nil)
    private let isOverwritten = Atomic<Bool>(false)

    init(path: String) {
        self.path = path
    }

    /// - Throws: the ``SQLiteError`` of the check that found a difference.
    func expectNoDifference() throws(SQLiteError) {
        guard isOverwritten.load(ordering: .relaxed) else { return }
        if let difference = difference.withLock({ $0 }) { throw difference }
    }

    /// Checks the contents of the files.
    ///
    /// - Throws: ``SQLiteError/fileWasOverwritten`` if a file was changed by another program.
    func expectOwn(on connection: Connection) throws(SQLiteError) {
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

    private func problem(on connection: Connection) throws(SQLiteError) -> String? {
        if let problem = try logProblem(on: connection) { return problem }
        return try databaseProblem(on: connection)
    }

    // MARK: The log

    private func logProblem(on connection: Connection) throws(SQLiteError) -> String? {
        while let header = connection.logHeader, let copying = connection.logCopying, header.frames > copying.copied {
            let problem = try Self.problem(ofLogWith: header, on: connection)
            // Another process may have restarted the log meanwhile.
            if connection.logHeader == header { return problem }
        }
        return nil
    }

    private static func problem(
        ofLogWith header: LogHeader, on connection: Connection
    ) throws(SQLiteError) -> String? {
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

    private func databaseProblem(on connection: Connection) throws(SQLiteError) -> String? {
        let former = seen.withLock { $0 }
        let copyingBefore = connection.logCopying
        guard let header = try connection.bytes(DatabaseHeader.length, at: 0, of: .database) else {
            return "the database was emptied"
        }
        guard let read = DatabaseHeader(header), read.applicationID == DatabaseFile.applicationID else {
            return "the file is not a Holdfast database any more"
        }
        guard read.usesLog else { return "the database was replaced by one written without a log, as backups are" }
        let isSameSchema = former.map { $0.schema == header[40..<44] } ?? false
        let root: Int64
        if let former, isSameSchema { root = former.root } else { root = try connection.rootOfCounters() }
        let size = try connection.databaseSize()
        guard let page = try connection.bytes(Int(read.pageSize), at: (root - 1) * Int64(read.pageSize), of: .database)
        else { return "the database is shorter than before" }
        // Reads the state of checkpoints both before and after the pages: a checkpoint changes it before it writes, and
        // may have ended when the pages are read.
        guard let copying = connection.logCopying else { return nil }
        var now = Seen(
            size: size, header: header, page: page, commit: former?.commit, root: root, copying: copying,
            isSettled: copying == copyingBefore && copying.isComplete)
        if let former, isSameSchema {
            guard size >= former.size else { return "the database is shorter than before" }
            let isUnchanged = size == former.size && header == former.header && page == former.page
            // After a failed sync the count of copied pages is reset, so the file may have more pages than the index
            // says.
            let hasMore = connection.logHeader.map { $0.salts != copying.salts || $0.frames != copying.copied } ?? true
            if former.isSettled, former.copying == copying, !hasMore, !isUnchanged {
                return "the database was changed by something else than SQLite"
            }
            if isUnchanged {
                if former.copying != copying || former.isSettled != now.isSettled {
                    seen.withLock { [now] in $0 = now }
                }
                return nil
            }
        }
        if former?.page != page || now.commit == nil {
            now.commit = CountersPage.commits(in: page)
            guard let commit = now.commit else {
                guard !isSameSchema else { return "the database was changed by something else than SQLite" }
                seen.withLock { $0 = now }
                return nil
            }
            if let known = former?.commit, commit <= known, isSameSchema {
                return "the database ended with commit \(known), and now ends with commit \(commit)"
            }
            let newest = try connection.integer("SELECT commits FROM counters")
            guard commit <= newest else {
                return "the database ends with commit \(commit), though the last one is \(newest)"
            }
        }
        let next = now
        seen.withLock { $0 = next }
        return nil
    }
}

/// The page of the table `counters`, as it is in the file
/// (https://www.sqlite.org/fileformat.html#b_tree_pages).
enum CountersPage {
    /// Returns the number of the last commit; `nil` if it is another page.
    static func commits(in page: [UInt8]) -> Int64? {
        // A leaf of a table with one row.
        guard page.count >= 512, page[0] == 0x0D, page[3] == 0, page[4] == 1 else { return nil }
        var offset = Int(page[8]) << 8 | Int(page[9])
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
        guard variableInteger() != nil, variableInteger() == 1 else { return nil }
        let start = offset
        // `id` is the row's number, which is not repeated; `commits` comes next.
        guard let length = variableInteger(), variableInteger() == 0, let type = variableInteger() else { return nil }
        let sizes = [0, 1, 2, 3, 4, 6, 8, nil, 0, 0]
        guard sizes.indices.contains(type), let size = sizes[type], start + length + size <= page.count else {
            return nil
        }
        if type > 7 { return Int64(type - 8) }
        let bytes = page[start + length..<start + length + size]
        return bytes.reduce(bytes.first.map { $0 > 0x7F ? -1 : 0 } ?? 0) { $0 << 8 | Int64($1) }
    }
}
