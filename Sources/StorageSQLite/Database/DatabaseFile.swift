import Glibc
import Migrations

/// The file of a Holdfast database: recognises it, brings it to this program's version, and opens connections to it.
struct DatabaseFile: Sendable {
    let path: String

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
        let connection: Connection
        let recognised: Result<Int64, DatabaseError>
        do throws(SQLiteError) {
            let exists = access(path, F_OK) == 0
            connection = try Connection(path: path, access: exists ? .write : .create, lockTimeout: lockTimeout)
            recognised = try recognise(connection)
        } catch {
            throw DatabaseError(path, error)
        }
        let version = try recognised.get()
        do throws(SQLiteError) {
            // Profiles are small and changed one by one: small pages make small commits.
            if version == 0 { try connection.execute("PRAGMA page_size = \(Self.pageSize)") }
            try useWriteAheadLog(connection)
            if version < Self.version { try migrate(connection) }
        } catch {
            throw DatabaseError(path, error)
        }
        return version
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

    /// The version of the file, without changing it.
    private func recognise(_ connection: Connection) throws(SQLiteError) -> Result<Int64, DatabaseError> {
        let tables = try connection.integer("SELECT count(*) FROM sqlite_schema")
        let applicationID = try connection.integer("PRAGMA application_id")
        let version = try connection.integer("PRAGMA user_version")
        if applicationID == 0, tables == 0 { return .success(0) }
        guard applicationID == Self.applicationID else {
            return .failure(DatabaseError(path, "it is a SQLite database of another program"))
        }
        guard version <= Self.version else {
            return .failure(
                DatabaseError(
                    path, "its version is \(version), and this program knows versions up to \(Self.version): it was "
                        + "written by a newer release"))
        }
        return .success(version)
    }

    /// All steps that are missing, with the number of the last, in one transaction. Another process may have done
    /// the same meanwhile; the version that counts is the one read under the lock.
    private func migrate(_ connection: Connection) throws(SQLiteError) {
        try connection.execute("BEGIN IMMEDIATE")
        do throws(SQLiteError) {
            let version = Int(try connection.integer("PRAGMA user_version"))
            for step in Migrations.all.dropFirst(version) {
                try connection.execute(String(decoding: step, as: UTF8.self))
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
        let connection = try Connection(path: path, access: .write, lockTimeout: lockTimeout)
        try connection.execute("PRAGMA query_only = ON; PRAGMA cache_size = -2048")
        return connection
    }

    /// A connection that writes. What it has committed survives a loss of power.
    func writer(lockTimeout: Double) throws(SQLiteError) -> Connection {
        let connection = try Connection(path: path, access: .write, lockTimeout: lockTimeout)
        try connection.execute(
            """
            PRAGMA synchronous = FULL;
            PRAGMA journal_size_limit = 67108864;
            PRAGMA cache_size = -16384;
            """)
        connection.countLogPages()
        return connection
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
