import Bucketing
import Storage

/// The `datafiles` table.
enum DatafileRows {
    static func active(after version: Int64, on connection: Connection) throws(SQLiteError) -> [StoredDatafile] {
        try connection.statement(
            """
            SELECT version, sdk_key, revision, content, stored_at, author FROM datafiles
            WHERE version > ?1 AND version IN (SELECT max(version) FROM datafiles GROUP BY sdk_key) ORDER BY version
            """
        ).all {
            $0.bind(version, at: 1)
        } row: {
            decode($0, content: $0.bytes(3))
        }
    }

    static func history(
        sdkKey: String, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [StoredDatafile] {
        try connection.statement(
            """
            SELECT version, sdk_key, revision, NULL, stored_at, author FROM datafiles
            WHERE sdk_key = ?1 ORDER BY version DESC LIMIT ?2
            """
        ).all {
            $0.bind(sdkKey, at: 1)
            $0.bind(Int64(limit), at: 2)
        } row: {
            decode($0, content: [])
        }
    }

    /// - Parameter count: the number of datafiles that are kept of a project. Of older ones some were deleted, so that
    ///   it is unknown which was active at the time.
    static func active(
        sdkKey: String, at time: Timestamp, keeping count: Int, on connection: Connection
    ) throws(SQLiteError) -> StoredDatafile? {
        try connection.statement(
            """
            SELECT version, sdk_key, revision, content, stored_at, author FROM datafiles AS found
            WHERE sdk_key = ?1 AND stored_at <= ?2
                AND (SELECT count(*) FROM datafiles WHERE sdk_key = ?1 AND version > found.version) < ?3
            ORDER BY version DESC LIMIT 1
            """
        ).first {
            $0.bind(sdkKey, at: 1)
            $0.bind(time, at: 2)
            $0.bind(Int64(max(1, count)), at: 3)
        } row: {
            decode($0, content: $0.bytes(3))
        }
    }

    static func find(
        sdkKey: String, version: Int64, on connection: Connection
    ) throws(SQLiteError) -> StoredDatafile? {
        try connection.statement(
            """
            SELECT version, sdk_key, revision, content, stored_at, author FROM datafiles
            WHERE version = ?1 AND sdk_key = ?2
            """
        ).first {
            $0.bind(version, at: 1)
            $0.bind(sdkKey, at: 2)
        } row: {
            decode($0, content: $0.bytes(3))
        }
    }

    static func last(
        sdkKey: String, by author: String, on connection: Connection
    ) throws(SQLiteError) -> StoredDatafile? {
        try connection.statement(
            """
            SELECT version, sdk_key, revision, content, stored_at, author FROM datafiles
            WHERE sdk_key = ?1 AND author = ?2 ORDER BY version DESC LIMIT 1
            """
        ).first {
            $0.bind(sdkKey, at: 1)
            $0.bind(author, at: 2)
        } row: {
            decode($0, content: $0.bytes(3))
        }
    }

    /// Returns the greatest version of all projects, including deleted ones; 0 if there was no datafile.
    static func newestVersion(on connection: Connection) throws(SQLiteError) -> Int64 {
        try connection.integer("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'datafiles'")
    }

    /// Returns the active datafile without its content.
    static func active(sdkKey: String, on connection: Connection) throws(SQLiteError) -> StoredDatafile? {
        try history(sdkKey: sdkKey, limit: 1, on: connection).first
    }

    static func insert(_ datafile: StoredDatafile, in transaction: WriteTransaction) throws(SQLiteError)
        -> StoredDatafile
    {
        var stored = datafile
        try transaction.connection.statement(
            """
            INSERT INTO datafiles (sdk_key, revision, content, stored_at, author) VALUES (?1, ?2, ?3, ?4, ?5)
            RETURNING version
            """
        ).run {
            $0.bind(datafile.sdkKey, at: 1)
            $0.bind(datafile.revision, at: 2)
            $0.bind(datafile.content, at: 3)
            $0.bind(datafile.storedAt, at: 4)
            $0.bind(datafile.author, at: 5)
        } row: {
            stored.version = $0.integer(0)
        }
        try transaction.changedProjects()
        return stored
    }

    static func delete(sdkKey: String, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement("DELETE FROM datafiles WHERE sdk_key = ?1").run { $0.bind(sdkKey, at: 1) }
    }

    /// The maximum number of datafiles that one transaction deletes, so that it does not delay other changes.
    private static let pruneLimit: Int64 = 100

    /// Deletes the oldest datafiles of a project.
    ///
    /// - Parameters:
    ///   - count: how many stay, including the active one.
    ///   - author: the author whose last datafile stays as well, however old.
    static func prune(
        sdkKey: String, keeping count: Int, andLastOf author: String, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        try transaction.connection.statement(
            """
            DELETE FROM datafiles WHERE version IN (
                SELECT version FROM datafiles WHERE sdk_key = ?1
                AND version <= (SELECT version FROM datafiles WHERE sdk_key = ?1 ORDER BY version DESC LIMIT 1 OFFSET ?2)
                AND version IS NOT (SELECT max(version) FROM datafiles WHERE sdk_key = ?1 AND author = ?3)
                ORDER BY version LIMIT ?4)
            """
        ).run {
            $0.bind(sdkKey, at: 1)
            $0.bind(Int64(max(1, count)), at: 2)
            $0.bind(author, at: 3)
            $0.bind(pruneLimit, at: 4)
        }
    }

    private static func decode(_ row: Statement, content: [UInt8]) -> StoredDatafile {
        StoredDatafile(
            version: row.integer(0), sdkKey: row.text(1), revision: row.text(2), content: content,
            storedAt: row.integer(4), author: row.text(5))
    }
}

/// The `projects` table.
enum ProjectRows {
    static func all(on connection: Connection) throws(SQLiteError) -> [ProjectRecord] {
        try connection.statement("SELECT sdk_key, name, created_at, is_default FROM projects ORDER BY sdk_key").all(
            row: {
                ProjectRecord(
                    sdkKey: $0.text(0), name: $0.text(1), createdAt: $0.integer(2), isDefault: $0.integer(3) != 0)
            })
    }

    /// Writes a project. If it is the default, no other is any longer.
    static func put(_ record: ProjectRecord, in transaction: WriteTransaction) throws(SQLiteError) {
        if record.isDefault {
            try transaction.connection.statement("UPDATE projects SET is_default = 0 WHERE is_default").run()
        }
        try transaction.connection.statement(
            "INSERT OR REPLACE INTO projects (sdk_key, name, created_at, is_default) VALUES (?1, ?2, ?3, ?4)"
        ).run {
            $0.bind(record.sdkKey, at: 1)
            $0.bind(record.name, at: 2)
            $0.bind(record.createdAt, at: 3)
            $0.bind(record.isDefault ? Int64(1) : 0, at: 4)
        }
        try transaction.changedProjects()
    }

    static func delete(sdkKey: String, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement("DELETE FROM projects WHERE sdk_key = ?1").run { $0.bind(sdkKey, at: 1) }
        try transaction.changedProjects()
    }
}

/// The `forced_variations` table.
enum ForcedVariationRows {
    static func all(on connection: Connection) throws(SQLiteError) -> [ForcedVariation] {
        try connection.statement("SELECT sdk_key, user_id, experiment_key, variation_key FROM forced_variations").all(
            row: decode)
    }

    static func ofUser(_ userID: Identifier, on connection: Connection) throws(SQLiteError) -> [ForcedVariation] {
        try connection.statement(
            "SELECT sdk_key, user_id, experiment_key, variation_key FROM forced_variations WHERE user_id = ?1"
        ).all {
            $0.bind(userID.string, at: 1)
        } row: {
            decode($0)
        }
    }

    private static func decode(_ row: Statement) -> ForcedVariation {
        ForcedVariation(
            sdkKey: row.text(0), userID: Identifier(row.text(1)), experimentKey: Identifier(row.text(2)),
            variationKey: Identifier(row.text(3)))
    }

    static func put(_ variation: ForcedVariation, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement(
            """
            INSERT OR REPLACE INTO forced_variations (sdk_key, user_id, experiment_key, variation_key)
            VALUES (?1, ?2, ?3, ?4)
            """
        ).run {
            bindKey(variation, to: $0)
            $0.bind(variation.variationKey.string, at: 4)
        }
        try transaction.changedProjects()
    }

    static func delete(_ variation: ForcedVariation, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement(
            "DELETE FROM forced_variations WHERE sdk_key = ?1 AND user_id = ?2 AND experiment_key = ?3"
        ).run { bindKey(variation, to: $0) }
        try transaction.changedProjects()
    }

    private static func bindKey(_ variation: ForcedVariation, to statement: Statement) {
        statement.bind(variation.sdkKey, at: 1)
        statement.bind(variation.userID.string, at: 2)
        statement.bind(variation.experimentKey.string, at: 3)
    }

    static func deleteAll(sdkKey: String, in transaction: WriteTransaction) throws(SQLiteError) {
        try transaction.connection.statement("DELETE FROM forced_variations WHERE sdk_key = ?1")
            .run { $0.bind(sdkKey, at: 1) }
    }

    static func erase(_ userID: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        let count = try transaction.connection.statement("DELETE FROM forced_variations WHERE user_id = ?1")
            .change { $0.bind(userID.string, at: 1) }
        if count > 0 { try transaction.changedProjects() }
    }
}
