import CSQLite
import Glibc
import Storage

/// A write-ahead log with commits that lies beside a database file (https://www.sqlite.org/fileformat.html#walformat).
///
/// SQLite adds the commits of a log to whatever file lies beside it. If that is another file than the one the log was
/// written for, such as a backup that was put in place of the database, the result is damaged.
struct LeftLog {
    let path: String
    private let pageSize: UInt32
    /// The salts, which change each time the log begins anew, and which each valid frame repeats.
    private let salts: [UInt8]
    /// The number of commits in the log; frames left from before the log began anew are not counted.
    private let commits: Int64

    private static let headerLength = 32
    private static let frameHeaderLength = 24

    /// Reads the log of a database without side effects.
    ///
    /// - Returns: `nil` if there is none, or if it has no commits.
    init?(database: String) {
        path = database + "-wal"
        // No lock of SQLite is on this file: closing a descriptor releases none.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        func bytes(_ count: Int, at offset: Int) -> [UInt8]? {
            var bytes = [UInt8](repeating: 0, count: count)
            return pread(descriptor, &bytes, count, off_t(offset)) == count ? bytes : nil
        }
        guard let header = bytes(Self.headerLength, at: 0), Self.number(header, 0) | 1 == 0x377F_0683 else {
            return nil
        }
        pageSize = Self.number(header, 8)
        salts = Array(header[16..<24])
        guard pageSize >= 512, pageSize <= 65_536 else { return nil }
        var commits: Int64 = 0
        var offset = Self.headerLength
        while let frame = bytes(Self.frameHeaderLength, at: offset), Array(frame[8..<16]) == salts {
            // The last frame of a commit has the size of the database after it.
            if Self.number(frame, 4) > 0 { commits += 1 }
            offset += Self.frameHeaderLength + Int(pageSize)
        }
        guard commits > 0 else { return nil }
        self.commits = commits
    }

    private static func number(_ bytes: [UInt8], _ offset: Int) -> UInt32 {
        bytes[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
    }

    /// Refuses a log that was written for another file than the one beside it. Nothing is changed.
    ///
    /// - Throws: ``DatabaseError``
    static func expectOwn(database: String) throws(DatabaseError) {
        // A checkpoint of another process may restart the log between the reads below, but not time and again.
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

    /// Why the log cannot belong to the file; `nil` if it may.
    private func contradiction(to database: String) -> String? {
        var status = stat()
        guard stat(database, &status) == 0, status.st_size > 0 else { return "the database is missing or empty" }
        guard let header = try? DatabaseHeader(path: database) else { return nil }
        guard header.usesLog else { return "the file was written without a log, as backups are" }
        guard header.pageSize == pageSize else {
            return "its pages have \(pageSize) bytes, those of the file \(header.pageSize)"
        }
        // The number of the last commit in the file itself, and with the log. Each commit of Holdfast raises it by one, and
        // the log begins with a commit to the state that it was copied into.
        guard let inFile = try? Self.lastCommit(database, isFileAlone: true),
            let withLog = try? Self.lastCommit(database, isFileAlone: false)
        else { return nil }
        guard inFile < withLog - commits || inFile > withLog else { return nil }
        let first = max(withLog - commits, 0)
        return "it continues commit \(first) and ends with commit \(withLog), the file ends with commit \(inFile)"
    }

    private static func lastCommit(_ database: String, isFileAlone: Bool) throws(SQLiteError) -> Int64 {
        let connection = try Connection(
            path: database, access: isFileAlone ? .readWithoutLog : .write, lockTimeout: 0.2)
        connection.setCheckpointOnClose(false)
        return try connection.integer("SELECT commits FROM counters")
    }
}
