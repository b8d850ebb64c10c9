import CSQLite
import Glibc
import Storage

/// A write-ahead log with commits that lies beside a database file before the database is opened
/// (https://www.sqlite.org/fileformat.html#walformat).
///
/// SQLite adds the commits of a log to any database file beside it. If the log was written for another file, the result
/// is a damaged database. That happens if somebody puts a backup in place of the database, but leaves the log.
/// ``expectNoForeignLog(beside:)`` refuses such a log.
struct LeftLog {
    let path: String
    private let pageSize: UInt32

    /// The length of the log's header, in bytes.
    private static let headerLength = 32
    /// The length of a frame without its page, in bytes.
    private static let frameHeaderLength = 24
    /// The approximate number of bytes that are read at once.
    private static let blockLength = 1 << 20
    /// The number of checks that must fail. A checkpoint of another process may restart the log during a check, which
    /// is unlikely to happen three times in a row.
    private static let checks = 3

    /// Reads the log beside a database, without side effects.
    ///
    /// - Returns: `nil` if there is no log, or if it has no commits.
    init?(database: String) {
        path = database + "-wal"
        guard let log = Self.read(path, commits: 1), log.commits > 0 else { return nil }
        pageSize = log.pageSize
    }

    /// Counts the commits in a log, which may have a million frames.
    ///
    /// Ends at frames that remain from before the log was restarted. Each restart changes the salts in the header, and
    /// each frame repeats the salts.
    ///
    /// - Parameters:
    ///   - limit: the number of commits at which counting ends.
    ///   - frame: called for each frame, with the number of its page, and the number of the database's pages after the
    ///     commit that ends with this frame; 0 if the frame does not end a commit.
    /// - Returns: `nil` if the file is missing or is not a log.
    private static func read(
        _ path: String, commits limit: Int64, frame: (Int, Int) -> Void = { _, _ in }
    ) -> (pageSize: UInt32, commits: Int64)? {
        // Closing a descriptor releases the process's POSIX locks of the file. SQLite has no locks on the log.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var header = [UInt8](repeating: 0, count: headerLength)
        // The lowest bit of the magic number is the byte order of the checksums.
        guard pread(descriptor, &header, header.count, 0) == header.count, header.bigEndian(at: 0) | 1 == 0x377F_0683
        else { return nil }
        let pageSize = header.bigEndian(at: 8)
        let salts = header[16..<24]
        guard pageSize >= 512, pageSize <= 65_536 else { return nil }
        let frameLength = frameHeaderLength + Int(pageSize)
        var commits: Int64 = 0
        var block = [UInt8](repeating: 0, count: max(1, blockLength / frameLength) * frameLength)
        var offset = headerLength
        while true {
            let count = pread(descriptor, &block, block.count, off_t(offset))
            for start in stride(from: 0, through: count - frameHeaderLength, by: frameLength) {
                guard commits < limit, block[start + 8..<start + 16] == salts else { return (pageSize, commits) }
                // The last frame of a commit has the size of the database after it.
                let databasePages = block.bigEndian(at: start + 4)
                if databasePages > 0 { commits += 1 }
                frame(Int(block.bigEndian(at: start)), Int(databasePages))
            }
            guard count == block.count else { return (pageSize, commits) }
            offset += count
        }
    }

    /// Refuses a log that was written for another file than the database beside it. Has no side effects.
    ///
    /// - Throws: ``DatabaseError`` if there is such a log.
    static func expectNoForeignLog(beside database: String) throws(DatabaseError) {
        var failures = 0
        while let log = LeftLog(database: database), let contradiction = log.contradiction(to: database) {
            failures += 1
            if failures == checks {
                throw DatabaseError(
                    database,
                    "the write-ahead log \(log.path) must belong to it; it belongs to another state of the database: "
                        + "\(contradiction). Put a backup in place with 'holdfast restore', which moves such a log aside. "
                        + "If the file was lost or replaced, the log has the last changes of the former file: keep a "
                        + "copy, then put that file back or move the log away", isPermanent: true)
            }
        }
    }

    /// Returns the reason why the log cannot belong to the file; `nil` if it may belong to it.
    private func contradiction(to database: String) -> String? {
        var status = stat()
        guard stat(database, &status) == 0, status.st_size > 0 else { return "the database is missing or empty" }
        guard let header = try? DatabaseHeader(path: database) else { return nil }
        guard header.usesLog else { return "the file was written without a log, as backups are" }
        guard header.pageSize == pageSize else {
            return "its pages have \(pageSize) bytes, those of the file \(header.pageSize)"
        }
        if let missing = Self.missingPage(path, of: status.st_size, header.pageSize) {
            return "the file ends before page \(missing), which is not in the log either"
        }
        return commitContradiction(to: database)
    }

    /// Compares the number of the last commit in the file alone with the number in the file with its log.
    ///
    /// Each commit of Holdfast raises the number by one. If the log belongs to the file, the number with the log is
    /// higher, by at most the number of commits in the log.
    private func commitContradiction(to database: String) -> String? {
        // The file is read first, because other processes may commit meanwhile.
        guard let inFile = try? Self.lastCommit(database, isFileAlone: true),
            let withLog = try? Self.lastCommit(database, isFileAlone: false), inFile != withLog
        else { return nil }
        // If the number with the log is lower, the log cannot belong to the file. All of its commits are then counted,
        // for the description.
        let isAhead = withLog > inFile
        let needed = isAhead ? withLog - inFile : .max
        guard let commits = Self.read(path, commits: needed)?.commits, commits > 0 else { return nil }
        if isAhead, commits >= needed { return nil }
        let first = max(withLog - commits, 0)
        return "it continues commit \(first) and ends with commit \(withLog), the file ends with commit \(inFile)"
    }

    /// Returns the number of the first page that is neither in the file nor in the log; `nil` if no page is missing.
    /// The new pages of a database that has grown are in the log until a checkpoint.
    private static func missingPage(_ path: String, of size: off_t, _ pageSize: UInt32) -> Int? {
        let present = Int(size) / Int(pageSize)
        /// The new pages of the transaction that is being read.
        var pending: [Int] = []
        /// The new pages of all complete transactions.
        var logged: Set<Int> = []
        /// The number of the database's pages after the last complete transaction.
        var count = 0
        _ = read(path, commits: .max) { page, databasePages in
            if page > present { pending.append(page) }
            guard databasePages > 0 else { return }
            logged.formUnion(pending)
            pending.removeAll()
            count = databasePages
        }
        guard count > present else { return nil }
        // SQLite never uses the page that contains the lock bytes.
        let lockPage = 0x4000_0000 / Int(pageSize) + 1
        return (present + 1...count).first { !logged.contains($0) && $0 != lockPage }
    }

    /// Returns the number of the last commit.
    ///
    /// - Parameter isFileAlone: whether to read the database file without its log.
    private static func lastCommit(_ database: String, isFileAlone: Bool) throws(SQLiteError) -> Int64 {
        let connection = try Connection(
            path: database, access: isFileAlone ? .readWithoutLog : .write, lockTimeout: 0.2)
        connection.setCheckpointOnClose(false)
        return try connection.integer("SELECT commits FROM counters")
    }
}
