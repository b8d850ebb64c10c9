import Glibc

/// Detects that the database file, its write-ahead log or the log's index was moved, deleted or replaced while it is
/// open. SQLite would continue to write into files that no path leads to.
///
/// ``ContentsCheck`` detects that files were overwritten in place, without a change of their identity.
extension DatabaseFile {
    /// A file that SQLite has open.
    struct OpenFile: Sendable {
        /// The name for operators.
        let name: String
        let path: String
        /// Whether the file is the write-ahead log.
        let isLog: Bool
        /// The identity when the file was opened; `nil` if it did not exist.
        let identity: Identity?

        /// The error for a file that is not in its place any more.
        var hasMoved: SQLiteError {
            SQLiteError(
                code: SQLiteError.fileHasMoved,
                message:
                    "the \(name) must stay in place while it is open; it was moved, deleted or replaced: restart the "
                    + "server")
        }
    }

    /// Distinguishes a file from another one at the same path.
    struct Identity: Equatable {
        let device: dev_t
        let inode: ino_t

        /// - Returns: `nil` if the file does not exist.
        init?(path: String) {
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            device = status.st_dev
            inode = status.st_ino
        }
    }

    /// Returns the file with the identities of its three parts, which must stay the same from now on. Call it after a
    /// connection was opened: SQLite creates the parts then, and deletes none of them while a connection is open.
    func opened() -> DatabaseFile {
        var file = self
        file.contents = ContentsCheck(path: path)
        let parts = [("database file", ""), ("write-ahead log", "-wal"), ("index of the write-ahead log", "-shm")]
        file.openFiles = parts.map { name, suffix in
            OpenFile(
                name: name, path: path + suffix, isLog: suffix == "-wal", identity: Identity(path: path + suffix))
        }
        return file
    }

    /// Checks that all files are still in place. Call it before writes: a write to a file that was moved or deleted is
    /// lost, even when it is synced.
    ///
    /// - Throws: ``SQLiteError/fileHasMoved`` if a path no longer leads to the open file;
    ///   ``SQLiteError/fileWasOverwritten`` if an earlier check has found this.
    func expectInPlace() throws(SQLiteError) {
        try contents?.expectNoDifference()
        for file in openFiles where Identity(path: file.path) != file.identity { throw file.hasMoved }
    }

    /// Checks that no other log has taken the place of the open one. Call it before reads: a deleted log remains
    /// readable until somebody writes another log through the same index.
    ///
    /// - Throws: ``SQLiteError/fileHasMoved`` if there is another log; ``SQLiteError/fileWasOverwritten`` if an earlier
    ///   check has found this.
    func expectNoOtherLog() throws(SQLiteError) {
        try contents?.expectNoDifference()
        for file in openFiles where file.isLog {
            if let identity = Identity(path: file.path), identity != file.identity { throw file.hasMoved }
        }
    }

    /// Whether the log was deleted and nobody has created another one, while the other files are in place.
    var lacksOnlyLog: Bool {
        openFiles.allSatisfy { Identity(path: $0.path) == ($0.isLog ? nil : $0.identity) }
    }
}
