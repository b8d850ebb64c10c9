import Glibc
public import Storage

/// The operators' commands for a database file: migrate, back up and restore. Servers may use the file at the same
/// time, except during a restore.
public enum DatabaseMaintenance {
    /// Creates the database, or migrates it to this program's version.
    ///
    /// - Returns: the version before and after.
    /// - Throws: ``DatabaseError`` if the file is not a Holdfast database, is of a newer release, or cannot be written.
    public static func migrate(path: String) throws(DatabaseError) -> (from: Int, to: Int) {
        let former = try DatabaseFile(path: path).prepare(lockTimeout: 10)
        return (Int(former), Int(DatabaseFile.version))
    }

    /// Checks that a database can be read without a migration. A command that only reads must not migrate a database
    /// that an older server uses.
    ///
    /// - Throws: ``DatabaseError`` if the database is missing, is not of this program's version, or cannot be read.
    public static func expectCurrentVersion(path: String) throws(DatabaseError) {
        let file = DatabaseFile(path: path)
        try file.recognise()
        guard file.sizes.database > 0 else { throw DatabaseError(path, "it must not be empty") }
        let version: Int64
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .write, lockTimeout: 10)
            connection.setCheckpointOnClose(false)
            version = try connection.integer("PRAGMA user_version")
        } catch {
            throw DatabaseError(path, error)
        }
        // `recognise` has refused newer versions.
        guard version >= DatabaseFile.version else {
            throw DatabaseError(
                path,
                "its version must be \(DatabaseFile.version); it is \(version): use the release that its server runs, or "
                    + "bring it up to date with 'holdfast migrate'")
        }
    }

    /// Writes a consistent copy of the database to a new file while servers go on reading and writing.
    ///
    /// The copy is written under a temporary name, and gets its final name once it is complete and durable.
    ///
    /// - Throws: ``DatabaseError`` if the target exists or cannot be written, or if the database cannot be read.
    public static func backUp(path: String, to target: String) throws(DatabaseError) {
        guard access(path, F_OK) == 0 else { throw DatabaseError(path, "it must exist") }
        guard access(target, F_OK) != 0 else { throw DatabaseError(target, "it must not exist yet") }
        let file = DatabaseFile(path: path)
        try file.recognise()
        guard file.sizes.database > 0 else { throw DatabaseError(path, "it must not be empty") }
        let partial = partialName(of: target)
        let descriptor = try claim(partial)
        defer { close(descriptor) }
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .write, lockTimeout: 10)
            try connection.change("VACUUM INTO ?1", .text(partial))
        } catch {
            // On a full disk SQLite may leave a journal of the copy behind.
            for name in [partial, partial + "-journal", partial + "-wal", partial + "-shm"] { unlink(name) }
            throw DatabaseError(path, error)
        }
        try publish(partial, descriptor, as: target)
    }

    /// Creates an empty file for a copy, readable by its owner only, and locks it while it is open, so that two
    /// commands do not write the same copy.
    ///
    /// - Returns: the descriptor of the open file.
    /// - Throws: ``DatabaseError`` if the file cannot be created, or if another command has locked it.
    static func claim(_ partial: String) throws(DatabaseError) -> Int32 {
        let descriptor = open(partial, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw DatabaseError(partial, String(cString: strerror(errno))) }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            close(descriptor)
            throw DatabaseError(partial, "another backup is writing to it")
        }
        // An interrupted command may have left contents.
        guard ftruncate(descriptor, 0) == 0, fchmod(descriptor, 0o600) == 0 else {
            defer { close(descriptor) }
            throw DatabaseError(partial, String(cString: strerror(errno)))
        }
        return descriptor
    }

    /// Returns the name of the copy while it is being written.
    public static func partialName(of target: String) -> String {
        target + ".partial"
    }

    /// Makes a complete copy durable, and gives it its final name.
    private static func publish(_ partial: String, _ descriptor: Int32, as target: String) throws(DatabaseError) {
        // Unlike rename, link does not replace a file that has appeared in the meantime.
        guard fsync(descriptor) == 0, link(partial, target) == 0 else {
            let reason = String(cString: strerror(errno))
            unlink(partial)
            throw DatabaseError(target, reason)
        }
        unlink(partial)
        syncDirectory(of: target)
    }

    /// Makes the new name of a file durable. Errors are ignored, because not every file system supports this, and the
    /// contents of the file are durable already.
    static func syncDirectory(of path: String) {
        let directory = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        let descriptor = open(directory, O_RDONLY | O_DIRECTORY)
        guard descriptor >= 0 else { return }
        fsync(descriptor)
        close(descriptor)
    }
}
