import Bucketing
import Chronology
import Glibc
import JSON
import Migrations
import Storage

/// The file of a Holdfast database: recognizes it, migrates it to this program's version, and opens connections.
struct DatabaseFile: Sendable {
    let path: String
    /// The files as of ``opened()``; empty before.
    private var openFiles: [OpenFile] = []
    /// What is in them; `nil` before ``opened()``.
    private(set) var contents: ContentsCheck?

    init(path: String) {
        self.path = path
    }

    /// "HdFt" in `PRAGMA application_id`, which marks a Holdfast database.
    static let applicationID: Int64 = 0x4864_4674
    private static let pageSize = 1_024
    static var version: Int64 { Int64(Migrations.sqlite.count) }

    /// Creates the file if it does not exist, and migrates an older one in one transaction. A file of another program or of
    /// a newer release is refused before anything is written to it.
    ///
    /// - Returns: the file's former version; 0 for a new one.
    @discardableResult
    func prepare(lockTimeout: Double) throws(DatabaseError) -> Int64 {
        try recognise()
        createPrivately()
        return try naming {
            let connection = try Connection(path: path, access: .create, lockTimeout: lockTimeout)
            // The write-ahead log may hold a newer version than the file. If that is refused, the log must stay as it is.
            connection.setCheckpointOnClose(false)
            let former = try connection.integer("PRAGMA user_version")
            try checkVersion(former)
            // Profiles are small and change one by one, so that small pages make small commits.
            if former == 0 { try connection.execute("PRAGMA page_size = \(Self.pageSize)") }
            // Before the switch to the write-ahead log, so that the file itself is marked as ours from the start.
            if former < Self.version { try migrate(connection) }
            connection.setCheckpointOnClose(true)
            try useWriteAheadLog(connection)
            return former
        }
    }

    /// Refuses a file that is not a Holdfast database, by its first bytes, and one beside the write-ahead log of another,
    /// without side effects. A missing or empty file is accepted.
    func recognise() throws(DatabaseError) {
        guard sizes.database > 0 else { return try LeftLog.expectOwn(database: path) }
        guard let header = try naming({ try DatabaseHeader(path: path) }) else {
            throw DatabaseError(path, "it must be a SQLite database", isPermanent: true)
        }
        guard header.applicationID == Self.applicationID else {
            throw DatabaseError(
                path, "it must be a Holdfast database; it belongs to another program", isPermanent: true)
        }
        try checkVersion(header.version)
        try LeftLog.expectOwn(database: path)
    }

    /// Creates the file readable by its owner only; SQLite gives the files beside it the same mode. A failure here recurs
    /// and is reported when SQLite opens the file.
    private func createPrivately() {
        let descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        if descriptor >= 0 { close(descriptor) }
    }

    private func checkVersion(_ found: Int64) throws(DatabaseError) {
        guard !(0...Self.version).contains(found) else { return }
        throw DatabaseError(
            path,
            "its version must be at most \(Self.version), which this program knows; it is \(found): a newer release "
                + "wrote it", isPermanent: true)
    }

    /// Adds the file's path to errors of SQLite.
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

    /// Switches to the write-ahead log, permanently. When several processes create the file at once, SQLite does not wait
    /// for the lock that the first switch needs; this does.
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

    /// Applies all missing steps, and sets the version, in one transaction. Another process may have done so in the
    /// meantime; only the version read under the lock counts.
    private func migrate(_ connection: Connection) throws {
        try connection.execute("BEGIN IMMEDIATE")
        do {
            let version = try connection.integer("PRAGMA user_version")
            try checkVersion(version)
            for step in Migrations.sqlite.dropFirst(Int(version)) {
                try connection.execute(String(decoding: step, as: UTF8.self))
            }
            if version > 0, version < Self.version {
                let note = AuditNote(
                    .databaseMigrate, of: "\(Self.version)", before: ["version": .integer(version)],
                    after: ["version": .integer(Self.version)])
                try connection.insert(AuditEntry(note, by: .processUser, at: systemWallClock()).values, into: .audit)
            }
            try connection.execute("PRAGMA application_id = \(Self.applicationID)")
            try connection.execute("PRAGMA user_version = \(Self.version)")
            try connection.execute("COMMIT")
        } catch {
            try? connection.execute("ROLLBACK")
            throw error
        }
    }

    /// Opens a connection that refuses to write.
    func reader(lockTimeout: Double) throws(SQLiteError) -> Connection {
        let connection = try connect(.write, lockTimeout: lockTimeout)
        try connection.execute("PRAGMA query_only = ON; PRAGMA cache_size = -2048")
        return connection
    }

    /// Opens a connection for writing. Its commits survive a power loss.
    func writer(lockTimeout: Double) throws(SQLiteError) -> Connection {
        let connection = try connect(.commit, lockTimeout: lockTimeout)
        // Without spills only a commit appends to the log, so that the blocks collected for one write (see
        // Access.commit) do not outlive their transaction.
        try connection.execute(
            """
            PRAGMA synchronous = FULL;
            PRAGMA journal_size_limit = 67108864;
            PRAGMA cache_size = -16384;
            PRAGMA cache_spill = OFF;
            """)
        connection.countLogPages()
        connection.setCheckpointOnClose(true)
        return connection
    }

    /// Opens a connection and reads something, so that SQLite opens the log.
    func connect(_ access: Connection.Access, lockTimeout: Double) throws(SQLiteError) -> Connection {
        try expectInPlace()
        let connection = try Connection(path: path, access: access, lockTimeout: lockTimeout)
        // Only the writer's connection does, which checks the files' contents before.
        connection.setCheckpointOnClose(false)
        try connection.execute("PRAGMA schema_version")
        connection.watchLog()
        return connection
    }

    // MARK: The files in place

    /// A file that SQLite has open.
    private struct OpenFile: Sendable {
        /// The name for operators.
        let name: String
        let path: String
        let isLog: Bool
        let identity: Identity?

        var hasMoved: SQLiteError {
            SQLiteError(
                code: SQLiteError.fileHasMoved,
                message:
                    "the \(name) must stay in place while it is open; it was moved, deleted or replaced: restart the "
                    + "server")
        }
    }

    /// Distinguishes a file from another one at the same path.
    private struct Identity: Equatable {
        let device: dev_t
        let inode: ino_t

        /// - Returns: `nil` if the file does not exist.
        init?(path: String) {
            var status = stat()
            guard stat(path, &status) == 0 else { return nil }
            (device, inode) = (status.st_dev, status.st_ino)
        }
    }

    /// Returns the file with the identity of all its parts, which must stay in place: SQLite deletes none of them while a
    /// connection is open.
    func opened() -> DatabaseFile {
        var file = self
        file.contents = ContentsCheck(path: path)
        file.openFiles = [
            ("database file", ""), ("write-ahead log", "-wal"), ("index of the write-ahead log", "-shm"),
        ].map { name, suffix in
            OpenFile(
                name: name, path: path + suffix, isLog: suffix == "-wal", identity: Identity(path: path + suffix))
        }
        return file
    }

    /// Checks that all files are still in place: writes to a file that was moved or deleted are lost, even when synced.
    ///
    /// - Throws: ``SQLiteError/fileHasMoved`` if a path no longer leads to the open file;
    ///   ``SQLiteError/fileWasOverwritten`` if that was noticed before.
    func expectInPlace() throws(SQLiteError) {
        try contents?.expectNoDifference()
        for file in openFiles where Identity(path: file.path) != file.identity { throw file.hasMoved }
    }

    /// Checks that no other log has taken the place of the open one. Deleted files remain readable, but not once somebody
    /// writes to another log through the same index.
    ///
    /// - Throws: ``SQLiteError/fileHasMoved``; ``SQLiteError/fileWasOverwritten`` if that was noticed before.
    func expectNoOtherLog() throws(SQLiteError) {
        try contents?.expectNoDifference()
        for file in openFiles where file.isLog {
            if let identity = Identity(path: file.path), identity != file.identity { throw file.hasMoved }
        }
    }

    /// Whether the log was deleted and nobody has created another.
    var lacksOnlyLog: Bool {
        openFiles.allSatisfy { Identity(path: $0.path) == ($0.isLog ? nil : $0.identity) }
    }

    /// The sizes of the file and of its write-ahead log, in bytes.
    var sizes: (database: Int, log: Int) {
        func size(_ path: String) -> Int {
            var status = stat()
            return stat(path, &status) == 0 ? Int(status.st_size) : 0
        }
        return (size(path), size(path + "-wal"))
    }
}

/// The header in the first 100 bytes of a database file (https://www.sqlite.org/fileformat.html#the_database_header),
/// read without side effects.
struct DatabaseHeader {
    /// `PRAGMA application_id`
    let applicationID: Int64
    /// `PRAGMA user_version`
    let version: Int64
    let pageSize: UInt32
    /// Whether the file is in the mode in which SQLite writes a log.
    let usesLog: Bool

    static let length = 100
    private static let magic = Array("SQLite format 3\0".utf8)

    /// - Returns: `nil` if the file is not a database.
    init?(path: String) throws(SQLiteError) {
        let connection = try Connection(path: path, access: .read, lockTimeout: 0)
        guard let bytes = try connection.bytes(Self.length, at: 0, of: .database) else { return nil }
        self.init(bytes)
    }

    /// - Returns: `nil` if the bytes do not begin a database.
    init?(_ bytes: [UInt8]) {
        guard bytes.count >= Self.length, bytes.starts(with: Self.magic) else { return nil }
        // 65,536 does not fit into two bytes and is written as 1.
        let size = UInt32(bytes[16]) << 8 | UInt32(bytes[17])
        pageSize = size == 1 ? 65_536 : size
        usesLog = bytes[18] == 2
        version = Int64(Int32(bitPattern: bytes.bigEndian(at: 60)))
        applicationID = Int64(Int32(bitPattern: bytes.bigEndian(at: 68)))
    }
}

extension [UInt8] {
    /// Returns the number in four bytes, in the byte order of SQLite's files.
    func bigEndian(at offset: Int) -> UInt32 {
        self[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
    }
}
