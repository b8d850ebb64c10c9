import Glibc

/// What an operator does with a database file, also while servers use it.
public enum DatabaseMaintenance {
    /// Makes the database or brings it up to this program's version.
    ///
    /// - Returns: the version before and now.
    /// - Throws: ``DatabaseError``
    public static func migrate(path: String) throws(DatabaseError) -> (from: Int, to: Int) {
        let former = try DatabaseFile(path: path).prepare(lockTimeout: 10)
        return (Int(former), Int(DatabaseFile.version))
    }

    /// Makes sure that a database can be read as it is, so that a command that only reads does not bring it up to date
    /// under an older server.
    ///
    /// - Throws: ``DatabaseError``
    public static func expectCurrentVersion(path: String) throws(DatabaseError) {
        let file = DatabaseFile(path: path)
        try file.recognise()
        guard file.sizes.database > 0 else { throw DatabaseError(path, "it is empty") }
        let version: Int64
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .write, lockTimeout: 10)
            connection.setCheckpointOnClose(false)
            version = try connection.integer("PRAGMA user_version")
        } catch {
            throw DatabaseError(path, error)
        }
        // A newer one is refused when it is opened.
        guard version >= DatabaseFile.version else {
            throw DatabaseError(
                path, "its version is \(version), and this program reads version \(DatabaseFile.version): use the release "
                    + "that its server runs, or bring it up to date with 'holdfast migrate'")
        }
    }

    /// Writes a copy of the database, as it is at one moment, to a new file. Servers go on reading and writing.
    ///
    /// The copy is made under another name and renamed when it is whole and on disk.
    ///
    /// - Throws: ``DatabaseError``, also when there is a file of this name.
    public static func backUp(path: String, to target: String) throws(DatabaseError) {
        guard access(path, F_OK) == 0 else { throw DatabaseError(path, "there is no such file") }
        guard access(target, F_OK) != 0 else { throw DatabaseError(target, "there is a file of this name already") }
        let file = DatabaseFile(path: path)
        try file.recognise()
        guard file.sizes.database > 0 else { throw DatabaseError(path, "it is empty") }
        let partial = partialName(of: target)
        let descriptor = try claim(partial)
        defer { close(descriptor) }
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .write, lockTimeout: 10)
            try connection.statement("VACUUM INTO ?1").run { $0.bind(partial, at: 1) }
        } catch {
            unlink(partial)
            throw DatabaseError(path, error)
        }
        try publish(partial, descriptor, as: target)
    }

    /// An empty file for the copy, which only its owner may read, and a lock on it for as long as it is open.
    private static func claim(_ partial: String) throws(DatabaseError) -> Int32 {
        let descriptor = open(partial, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw DatabaseError(partial, String(cString: strerror(errno))) }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            close(descriptor)
            throw DatabaseError(partial, "another copy is being made under this name")
        }
        // What is left of one that was not finished.
        guard ftruncate(descriptor, 0) == 0, fchmod(descriptor, 0o600) == 0 else {
            defer { close(descriptor) }
            throw DatabaseError(partial, String(cString: strerror(errno)))
        }
        return descriptor
    }

    /// What the copy is called while it is made.
    public static func partialName(of target: String) -> String {
        target + ".partial"
    }

    private static func publish(_ partial: String, _ descriptor: Int32, as target: String) throws(DatabaseError) {
        // link, unlike rename, does not replace a file that has appeared meanwhile.
        guard fsync(descriptor) == 0, link(partial, target) == 0 else {
            let reason = String(cString: strerror(errno))
            unlink(partial)
            throw DatabaseError(target, reason)
        }
        unlink(partial)
        synchroniseDirectory(of: target)
    }

    /// Makes the new name last, too. Not every file system can; the file itself is on disk by now.
    private static func synchroniseDirectory(of path: String) {
        let directory = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        let descriptor = open(directory, O_RDONLY | O_DIRECTORY)
        guard descriptor >= 0 else { return }
        fsync(descriptor)
        close(descriptor)
    }
}
