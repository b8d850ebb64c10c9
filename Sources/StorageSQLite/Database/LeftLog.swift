import CSQLite
import Glibc
import Storage

/// A write-ahead log with commits that lies beside a database file before the database is opened
/// (https://www.sqlite.org/fileformat.html#walformat).
///
/// SQLite adds the commits of a log to any database file beside it. If the log was written for another file, for
/// example because a backup was put in place of the database, the result is a damaged database.
/// ``expectOwn(database:)`` refuses such a log.
struct LeftLog {
    let path: String
    private let pageSize: UInt32

    private static let headerLength = 32
    private static let frameHeaderLength = 24
    /// The approximate number of bytes that are read at once.
    private static let blockLength = 1 << 20

    /// Looks for the log of a database, without side effects.
    ///
    /// - Returns: `nil` if there is none, or if it has no commits.
    init?(database: String) {
        path = database + "-wal"
        guard let log = Self.read(path, commits: 1), log.commits > 0 else { return nil }
        pageSize = log.pageSize
    }

    /// Counts the commits in a log, which may have a million frames.
    ///
    /// Does not count frames that remain from before the log was restarted. Each restart changes the salts in the
    /// header, and each frame repeats the salts.
    ///
    /// - Parameters:
    ///   - limit: the number of commits at which counting ends.
    ///   - frame: called with the number of each frame's page, and the number of the database's pages if it ends a
    ///     commit.
    /// - Returns: `nil` if the file is missing or is not a log.
    private static func read(
        _ path: String, commits limit: Int64, frame: (Int, Int) -> Void = { _, _ in }
    ) -> (pageSize: UInt32, commits: Int64)? {
        // Closing a descriptor releases the process's POSIX locks of the file. SQLite has none on the log.
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

    /// Refuses a log that was written for another file than the one beside it. Nothing is changed.
    ///
    /// - Throws: ``DatabaseError``
    static func expectOwn(database: String) throws(DatabaseError) {
        // A checkpoint of another process may restart the log between the reads below, which is unlikely to happen
        // three times in a row.
        var tries = 0
        while let log = LeftLog(database: database), let contradiction = log.contradiction(to: database) {
            tries += 1
            if tries == 3 {
                throw DatabaseError(
                    database,
                    "the write-ahead log \(log.path) must belong to it; it belongs to another state of the database: "
                        + "\(contradiction). Put a backup in place with 'holdfast restore', which moves such a log aside. "
                        + "If the file was lost or replaced, the log has the last changes of the former file: keep a "
                        + "copy, then put that file back or move the log away", isPermanent: true)
            }
        }
    }

    /// Returns the reason why the log cannot belong to the file; `nil` if it may.
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
    /// Each commit of Holdfast raises the number by one. So a log that belongs to the file has at least as many commits
    /// as the difference.
    private func commitContradiction(to database: String) -> String? {
        // The file is read first, because other processes may commit meanwhile.
        guard let inFile = try? Self.lastCommit(database, isFileAlone: true),
            let withLog = try? Self.lastCommit(database, isFileAlone: false), inFile != withLog,
            let commits = Self.read(path, commits: inFile < withLog ? withLog - inFile : .max)?.commits, commits > 0,
            inFile > withLog || commits < withLog - inFile
        else { return nil }
        let first = max(withLog - commits, 0)
        return "it continues commit \(first) and ends with commit \(withLog), the file ends with commit \(inFile)"
    }

    /// Returns the number of the first page beyond the end of the file that the log should have and does not; `nil` if
    /// none is missing. A database that has grown has its new pages in the log until a checkpoint.
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
    /// - Parameter isFileAlone: whether the log is ignored.
    private static func lastCommit(_ database: String, isFileAlone: Bool) throws(SQLiteError) -> Int64 {
        let connection = try Connection(
            path: database, access: isFileAlone ? .readWithoutLog : .write, lockTimeout: 0.2)
        connection.setCheckpointOnClose(false)
        return try connection.integer("SELECT commits FROM counters")
    }
}
