import CSQLite
import Glibc
public import Storage

extension DatabaseMaintenance {
    /// The contents of a restored database.
    public struct Restored: Sendable {
        public let version: Int
        public let profiles: Int
        public let assignments: Int
        /// The path of the former database; `nil` if there was none.
        public let former: String?
    }

    /// Puts a checked copy of a backup in place of the database, and keeps the former files beside it.
    ///
    /// The copy is complete and durable before it gets the database's name in one step. The next step moves the former
    /// write-ahead log away. If the process dies between these two steps, servers refuse to start until a backup is
    /// restored again.
    ///
    /// - Parameters:
    ///   - backup: the path of the backup.
    ///   - path: the path of the database.
    ///   - date: the suffix of the names of the former files.
    /// - Throws: ``DatabaseError`` if the backup is damaged or of a newer release, or a process uses the database;
    ///   nothing has changed then.
    public static func restore(_ backup: String, to path: String, date: String) throws(DatabaseError) -> Restored {
        guard access(backup, F_OK) == 0 else { throw DatabaseError(backup, "it must exist") }
        guard !areSame(backup, path) else {
            throw DatabaseError(backup, "the backup must be another file than the database that it replaces")
        }
        let source = DatabaseFile(path: backup)
        try source.recognise()
        guard source.sizes.database > 0 else { throw DatabaseError(backup, "it must not be empty") }
        let lockedFiles = try lockUnused(path)
        defer { lockedFiles.forEach { close($0) } }
        let partial = partialName(of: path)
        let descriptor = try claim(partial)
        defer { close(descriptor) }
        do throws(DatabaseError) {
            let contents = try copyChecked(backup, to: partial)
            let former = try replace(path, by: partial, descriptor, date: date)
            return Restored(
                version: contents.version, profiles: contents.profiles, assignments: contents.assignments,
                former: former)
        } catch {
            unlink(partial)
            throw error
        }
    }

    /// Whether two paths lead to one file.
    private static func areSame(_ path: String, _ other: String) -> Bool {
        var first = stat()
        var second = stat()
        return stat(path, &first) == 0 && stat(other, &second) == 0 && first.st_dev == second.st_dev
            && first.st_ino == second.st_ino
    }

    /// A file of a database with the range of bytes that SQLite locks in it.
    private struct LockRange {
        let suffix: String
        let start: off_t
        let length: off_t
    }

    /// The ranges in SQLite's os_unix.c: PENDING_BYTE, RESERVED_BYTE and the shared range in the database file;
    /// UNIX_SHM_BASE and the slots in the log's index.
    private static let lockRanges = [
        LockRange(suffix: "", start: 0x4000_0000, length: 512), LockRange(suffix: "-shm", start: 120, length: 9),
    ]

    /// Locks the files of a database, so that no process begins to use the database until the descriptors are closed.
    ///
    /// SQLite holds a shared lock on both files as long as a connection is open. The locks are tested without SQLite,
    /// which cannot open a damaged database, and damage is a reason to restore a backup.
    ///
    /// - Returns: the descriptors of the locked files.
    /// - Throws: ``DatabaseError`` if a process uses the database, or if a file cannot be opened.
    private static func lockUnused(_ path: String) throws(DatabaseError) -> [Int32] {
        var descriptors: [Int32] = []
        for file in lockRanges {
            let descriptor = open(path + file.suffix, O_RDWR | O_CLOEXEC)
            guard descriptor >= 0 else {
                if errno == ENOENT { continue }
                defer { descriptors.forEach { close($0) } }
                throw DatabaseError(path, String(cString: strerror(errno)))
            }
            descriptors.append(descriptor)
            var lock = flock()
            lock.l_type = Int16(F_WRLCK)
            lock.l_whence = Int16(SEEK_SET)
            lock.l_start = file.start
            lock.l_len = file.length
            guard fcntl(descriptor, F_SETLK, &lock) == 0 else {
                defer { descriptors.forEach { close($0) } }
                throw DatabaseError(path, "no process may use it during a restore; one does: stop its servers first")
            }
        }
        return descriptors
    }

    private struct BackupContents {
        let version: Int
        let profiles: Int
        let assignments: Int
    }

    /// Checks a backup for damage, and copies it.
    private static func copyChecked(
        _ backup: String, to partial: String
    ) throws(DatabaseError) -> BackupContents {
        do throws(SQLiteError) {
            // Read-only, so that a backup on a read-only disk will do.
            let connection = try Connection(path: backup, access: .read, lockTimeout: 10)
            let problems = try connection.all("PRAGMA integrity_check(3)") { $0.text(0) }
            guard problems == ["ok"] else {
                throw SQLiteError(code: SQLITE_CORRUPT, message: problems.joined(separator: "; "))
            }
            try connection.change("VACUUM INTO ?1", .text(partial))
            try renewFeed(of: partial)
            return BackupContents(
                version: Int(try connection.integer("PRAGMA user_version")),
                profiles: Int(try connection.integer("SELECT profiles FROM counters")),
                assignments: Int(try connection.integer("SELECT assignments FROM counters")))
        } catch {
            throw DatabaseError(backup, error)
        }
    }

    /// Gives the feed another epoch, which makes the cursors of its readers invalid. The cursors may point to changes
    /// after the backup, which the restored database lacks.
    private static func renewFeed(of path: String) throws(SQLiteError) {
        let connection = try Connection(path: path, access: .write, lockTimeout: 10)
        // A backup of an old release has no feed.
        guard try connection.integer("SELECT count(*) FROM sqlite_schema WHERE name = 'feed_state'") > 0 else { return }
        let former = try FeedRows.state(on: connection).epoch
        guard former != 0 else { return }
        try connection.run(FeedState.setEpoch(StoreGeneration.random(), replacing: former, .sqlite))
    }

    /// Gives a complete copy the name of the database.
    ///
    /// - Parameters:
    ///   - partial: the path of the copy.
    ///   - descriptor: the open copy.
    /// - Returns: the new name of the former database; `nil` if there was none.
    private static func replace(
        _ path: String, by partial: String, _ descriptor: Int32, date: String
    ) throws(DatabaseError) -> String? {
        /// Throws the error of a system call that has failed.
        func check(_ hasSucceeded: Bool) throws(DatabaseError) {
            guard hasSucceeded else { throw DatabaseError(path, String(cString: strerror(errno))) }
        }
        let former = "\(path).\(date)"
        guard access(former, F_OK) != 0, access(former + "-wal", F_OK) != 0 else {
            throw DatabaseError(former, "it must not exist yet: the former database gets this name")
        }
        var status = stat()
        let exists = stat(path, &status) == 0
        if exists {
            // The servers' user must be able to open the file. If root restores it, the file belongs to root at first.
            if geteuid() == 0 { try check(fchown(descriptor, status.st_uid, status.st_gid) == 0) }
            try check(fchmod(descriptor, status.st_mode & 0o777) == 0)
        }
        try check(fsync(descriptor) == 0)
        // The former database gets a second name before it loses its first, so that the path always leads to a
        // database.
        if exists { try check(link(path, former) == 0) }
        guard rename(partial, path) == 0 else {
            let reason = String(cString: strerror(errno))
            if exists { unlink(former) }
            throw DatabaseError(path, reason)
        }
        if access(path + "-wal", F_OK) == 0 { try check(rename(path + "-wal", former + "-wal") == 0) }
        unlink(path + "-shm")
        syncDirectory(of: path)
        return exists ? former : nil
    }
}
