import Bucketing
import Glibc
import JSON
import Migrations
import Storage

/// The file of a Holdfast database: recognises it, brings it to this program's version, and opens connections to it.
struct DatabaseFile: Sendable {
    let path: String
    /// As they were when ``opened()`` was called; empty before.
    private var openFiles: [OpenFile] = []

    init(path: String) {
        self.path = path
    }

    /// "HdFt", which marks the file as ours (`PRAGMA application_id`).
    private static let applicationID: Int64 = 0x4864_4674
    private static let pageSize = 1_024
    static var version: Int64 { Int64(Migrations.all.count) }

    /// Makes the file if there is none, and brings an older one up to date in one transaction. A file that is not ours,
    /// or newer than this program, is refused before anything is written to it.
    ///
    /// - Returns: the version that the file had; 0 for a new one.
    @discardableResult
    func prepare(lockTimeout: Double) throws(DatabaseError) -> Int64 {
        try recognise()
        createPrivately()
        return try naming {
            let connection = try Connection(path: path, access: .create, lockTimeout: lockTimeout)
            // The write-ahead log may know of a newer version than the file; it stays as it is if that is refused.
            connection.setCheckpointOnClose(false)
            let former = try connection.integer("PRAGMA user_version")
            try checkVersion(former)
            // Profiles are small and changed one by one: small pages make small commits.
            if former == 0 { try connection.execute("PRAGMA page_size = \(Self.pageSize)") }
            // In this order, so that the file itself says from the first that it is ours.
            if former < Self.version { try migrate(connection) }
            connection.setCheckpointOnClose(true)
            try useWriteAheadLog(connection)
            return former
        }
    }

    /// Refuses what is not a database of ours by its first bytes alone, so that nothing can come of it. What does not
    /// exist or is empty is to become ours.
    func recognise() throws(DatabaseError) {
        guard sizes.database > 0 else { return }
        guard let header = try naming({ try DatabaseHeader(path: path) }) else {
            throw DatabaseError(path, "it is not a SQLite database")
        }
        guard header.applicationID == Self.applicationID else {
            throw DatabaseError(path, "it is a SQLite database of another program")
        }
        try checkVersion(header.version)
    }

    /// Only its owner may read a new database. SQLite gives the files beside it the same mode. What goes wrong here,
    /// goes wrong again when SQLite opens the file, and is told then.
    private func createPrivately() {
        let descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        if descriptor >= 0 { close(descriptor) }
    }

    private func checkVersion(_ found: Int64) throws(DatabaseError) {
        guard !(0...Self.version).contains(found) else { return }
        throw DatabaseError(
            path, "its version is \(found), and this program knows versions up to \(Self.version): it was written by a "
                + "newer release")
    }

    /// Adds to what SQLite says which file it is about.
    private func naming<Value>(_ body: () throws -> Value) throws(DatabaseError) -> Value {
        do {
            return try body()
        } catch let error as DatabaseError {
            throw error
        } catch let error as SQLiteError {
            throw DatabaseError(path, error)
        } catch {
            throw DatabaseError(path, "\(error)")
        }
    }

    /// Lasting; SQLite does not wait for the lock that the first switch of a file needs, when several processes make
    /// the file at once.
    private func useWriteAheadLog(_ connection: Connection) throws(SQLiteError) {
        var tries = 0
        while true {
            do throws(SQLiteError) {
                return try connection.execute("PRAGMA journal_mode = WAL")
            } catch {
                tries += 1
                guard error.isBusy, tries < 500 else { throw error }
                usleep(10_000)
            }
        }
    }

    /// All steps that are missing, with the number of the last, in one transaction. Another process may have done
    /// the same meanwhile; the version that counts is the one read under the lock.
    private func migrate(_ connection: Connection) throws {
        try connection.execute("BEGIN IMMEDIATE")
        do {
            let version = try connection.integer("PRAGMA user_version")
            try checkVersion(version)
            for step in Migrations.all.dropFirst(Int(version)) {
                try connection.execute(String(decoding: step, as: UTF8.self))
            }
            if version > 0, version < Self.version {
                let note = AuditNote(
                    .databaseMigrate, of: "\(Self.version)", before: ["version": .integer(version)],
                    after: ["version": .integer(Self.version)])
                try AuditRows.insert(note, by: .processUser, at: systemWallClock(), on: connection)
            }
            try connection.execute("PRAGMA application_id = \(Self.applicationID)")
            try connection.execute("PRAGMA user_version = \(Self.version)")
            try connection.execute("COMMIT")
        } catch {
            try? connection.execute("ROLLBACK")
            throw error
        }
    }

    /// A connection that reads. It reads only, whatever it is asked.
    func reader(lockTimeout: Double) throws(SQLiteError) -> Connection {
        let connection = try connect(.write, lockTimeout: lockTimeout)
        try connection.execute("PRAGMA query_only = ON; PRAGMA cache_size = -2048")
        return connection
    }

    /// A connection that writes. What it has committed survives a loss of power.
    func writer(lockTimeout: Double) throws(SQLiteError) -> Connection {
        let connection = try connect(.commit, lockTimeout: lockTimeout)
        // Without spills nothing is appended to the log but by a commit, so that none of what is collected for one
        // write to it (see Access.commit) outlives its transaction.
        try connection.execute(
            """
            PRAGMA synchronous = FULL;
            PRAGMA journal_size_limit = 67108864;
            PRAGMA cache_size = -16384;
            PRAGMA cache_spill = OFF;
            """)
        connection.countLogPages()
        return connection
    }

    /// A connection that has read something, before which SQLite knows nothing of the log.
    func connect(_ access: Connection.Access, lockTimeout: Double) throws(SQLiteError) -> Connection {
        try expectInPlace()
        let connection = try Connection(path: path, access: access, lockTimeout: lockTimeout)
        try connection.execute("PRAGMA schema_version")
        connection.watchLog()
        return connection
    }

    // MARK: The files in place

    /// One of the files that SQLite has open.
    private struct OpenFile: Sendable {
        /// What an operator knows it as.
        let name: String
        let path: String
        let isLog: Bool
        let identity: Identity?

        var hasMoved: SQLiteError {
            SQLiteError(
                code: SQLiteError.fileHasMoved,
                message: "the \(name) must stay in place while it is open; it was moved, deleted or replaced: restart the "
                    + "server")
        }
    }

    /// What tells one file from another in its place.
    private struct Identity: Equatable {
        let device: dev_t
        let inode: ino_t

        /// `nil`: there is no such file.
        init?(path: String) {
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            (device, inode) = (status.st_dev, status.st_ino)
        }
    }

    /// The file with what is in place now, which must stay there: SQLite deletes none of it while a connection is open.
    func opened() -> DatabaseFile {
        var file = self
        file.openFiles = [
            ("database file", ""), ("write-ahead log", "-wal"), ("index of the write-ahead log", "-shm"),
        ].map { name, suffix in
            OpenFile(
                name: name, path: path + suffix, isLog: suffix == "-wal", identity: Identity(path: path + suffix))
        }
        return file
    }

    /// What is written to a file that nobody finds again is lost, however often it is synchronised.
    ///
    /// - Throws: ``SQLiteError/fileHasMoved`` when the path of a file no longer leads to the one that was opened.
    func expectInPlace() throws(SQLiteError) {
        for file in openFiles where Identity(path: file.path) != file.identity { throw file.hasMoved }
    }

    /// What is open can be read when its files are gone, but not when somebody writes to another log by the same index.
    ///
    /// - Throws: ``SQLiteError/fileHasMoved``
    func expectNoOtherLog() throws(SQLiteError) {
        for file in openFiles where file.isLog {
            if let identity = Identity(path: file.path), identity != file.identity { throw file.hasMoved }
        }
    }

    /// Whether the log was deleted, and nobody has made another since.
    var lacksOnlyLog: Bool {
        openFiles.allSatisfy { Identity(path: $0.path) == ($0.isLog ? nil : $0.identity) }
    }

    /// Bytes of the file and of its write-ahead log.
    var sizes: (database: Int, log: Int) {
        func size(_ path: String) -> Int {
            var status = stat()
            return stat(path, &status) == 0 ? Int(status.st_size) : 0
        }
        return (size(path), size(path + "-wal"))
    }
}
