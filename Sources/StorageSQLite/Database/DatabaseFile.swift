import Bucketing
import Chronology
import Glibc
import JSON
import Migrations
import Storage

/// The file of a Holdfast database: recognizes the file, migrates it to this program's version, and opens connections.
///
/// A store first calls ``prepare(lockTimeout:)``, then opens its writer, and then keeps the result of ``opened()``,
/// which can also check that the files stay in place.
struct DatabaseFile: Sendable {
    let path: String
    /// The files that must stay in place; empty before ``opened()``.
    var openFiles: [OpenFile] = []
    /// Checks the contents of the files; `nil` before ``opened()``.
    var contents: ContentsCheck?

    init(path: String) {
        self.path = path
    }

    /// "HdFt" in `PRAGMA application_id`, which marks a Holdfast database.
    static let applicationID: Int64 = 0x4864_4674
    /// The size of a page in a new database, in bytes. Small, because profiles are small and change one by one, so that
    /// small pages make small commits.
    private static let pageSize = 1_024
    /// The interval between attempts to switch to the write-ahead log, in microseconds.
    private static let switchInterval: UInt32 = 10_000
    /// The maximum number of these attempts, which take five seconds.
    private static let switchAttempts = 500
    /// The version of this program's databases.
    static var version: Int64 { Int64(Migrations.sqlite.count) }

    /// Creates the file if it does not exist, and migrates an older one in one transaction. A file of another program
    /// or of a newer release is refused before anything is written to it.
    ///
    /// - Parameter lockTimeout: how long to wait for locks of other processes, in seconds.
    /// - Returns: the file's former version; 0 for a new file.
    /// - Throws: ``DatabaseError`` if the file is refused, or cannot be opened or written.
    @discardableResult
    func prepare(lockTimeout: Double) throws(DatabaseError) -> Int64 {
        try recognise()
        createPrivately()
        return try addingPath {
            let connection = try Connection(path: path, access: .create, lockTimeout: lockTimeout)
            // The write-ahead log may contain a newer version than the file. If the newer version is refused, the log
            // must stay as it is.
            connection.setCheckpointOnClose(false)
            let former = try connection.integer("PRAGMA user_version")
            try checkVersion(former)
            if former == 0 { try connection.execute("PRAGMA page_size = \(Self.pageSize)") }
            // Before the switch to the write-ahead log, so that the file itself has the application id from the start.
            if former < Self.version { try migrate(connection) }
            connection.setCheckpointOnClose(true)
            try useWriteAheadLog(connection)
            return former
        }
    }

    /// Refuses a file that is not a Holdfast database, and a file beside the write-ahead log of another file. Accepts a
    /// missing or empty file. Has no side effects: reads only the header of the file, and the log.
    ///
    /// - Throws: ``DatabaseError`` if the file or the log is refused, or cannot be read.
    func recognise() throws(DatabaseError) {
        guard sizes.database > 0 else { return try LeftLog.expectNoForeignLog(beside: path) }
        guard let header = try addingPath({ try DatabaseHeader(path: path) }) else {
            throw DatabaseError(path, "it must be a SQLite database", isPermanent: true)
        }
        guard header.applicationID == Self.applicationID else {
            throw DatabaseError(
                path, "it must be a Holdfast database; it belongs to another program", isPermanent: true)
        }
        try checkVersion(header.version)
        try LeftLog.expectNoForeignLog(beside: path)
    }

    /// Creates the file, readable by its owner only. SQLite gives the files beside it the same mode. A failure is not
    /// reported here, because it recurs when SQLite opens the file.
    private func createPrivately() {
        let descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        if descriptor >= 0 { close(descriptor) }
    }

    /// Refuses a version of a newer release.
    private func checkVersion(_ found: Int64) throws(DatabaseError) {
        guard !(0...Self.version).contains(found) else { return }
        throw DatabaseError(
            path,
            "its version must be at most \(Self.version), which this program knows; it is \(found): a newer release "
                + "wrote it", isPermanent: true)
    }

    /// Adds the file's path to errors of SQLite.
    private func addingPath<Value>(_ body: () throws -> Value) throws(DatabaseError) -> Value {
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

    /// Switches to the write-ahead log, permanently. The switch needs a lock, for which SQLite does not wait; several
    /// processes may create the file at once, so this function waits.
    private func useWriteAheadLog(_ connection: Connection) throws(SQLiteError) {
        var attempts = 0
        while true {
            do throws(SQLiteError) {
                return try connection.execute("PRAGMA journal_mode = WAL")
            } catch {
                attempts += 1
                guard error.isBusy, attempts < Self.switchAttempts else { throw error }
                usleep(Self.switchInterval)
            }
        }
    }

    /// Applies all missing migrations and sets the version, in one transaction. Another process may have done so since
    /// the version was first read, so the version is read again under the lock.
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

    /// Opens a connection that refuses to write. Its cache has 2 MiB; a negative `cache_size` is in KiB.
    func reader(lockTimeout: Double) throws(SQLiteError) -> Connection {
        let connection = try connect(.write, lockTimeout: lockTimeout)
        try connection.execute("PRAGMA query_only = ON; PRAGMA cache_size = -2048")
        return connection
    }

    /// Opens a connection for writing. Its commits survive a power loss.
    func writer(lockTimeout: Double) throws(SQLiteError) -> Connection {
        let connection = try connect(.commit, lockTimeout: lockTimeout)
        // Without cache spills only a commit appends to the log. So the blocks that are collected for one write (see
        // Access.commit) do not outlive their transaction. The cache has 16 MiB; a negative size is in KiB. The log
        // shrinks to 64 MiB when it restarts.
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

    /// Opens a connection and reads from it, so that SQLite opens the log, which ``Connection/watchLog()`` needs.
    func connect(_ access: Connection.Access, lockTimeout: Double) throws(SQLiteError) -> Connection {
        try expectInPlace()
        let connection = try Connection(path: path, access: access, lockTimeout: lockTimeout)
        // Only the writer's connection copies the log when it is closed, because the writer checks the contents of the
        // files first.
        connection.setCheckpointOnClose(false)
        try connection.execute("PRAGMA schema_version")
        connection.watchLog()
        return connection
    }

    /// The sizes of the file and of its write-ahead log, in bytes; 0 for a missing file.
    var sizes: (database: Int, log: Int) {
        func size(_ path: String) -> Int {
            var status = stat()
            return stat(path, &status) == 0 ? Int(status.st_size) : 0
        }
        return (size(path), size(path + "-wal"))
    }
}

/// The header of a database file: its first 100 bytes (https://www.sqlite.org/fileformat.html#the_database_header).
struct DatabaseHeader {
    /// `PRAGMA application_id`
    let applicationID: Int64
    /// `PRAGMA user_version`
    let version: Int64
    let pageSize: UInt32
    /// Whether the file is in the mode in which SQLite writes a write-ahead log.
    let usesLog: Bool

    static let length = 100
    private static let magic = Array("SQLite format 3\0".utf8)

    /// Reads the header of a file, without side effects such as recovery of the log.
    ///
    /// - Returns: `nil` if the file is not a database.
    init?(path: String) throws(SQLiteError) {
        let connection = try Connection(path: path, access: .read, lockTimeout: 0)
        guard let bytes = try connection.bytes(Self.length, at: 0, of: .database) else { return nil }
        self.init(bytes)
    }

    /// Decodes a header.
    ///
    /// - Returns: `nil` if the bytes are not the header of a database.
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
    /// Returns the number in the four bytes at an offset. SQLite's files are big-endian.
    func bigEndian(at offset: Int) -> UInt32 {
        self[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
    }
}
