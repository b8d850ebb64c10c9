import Bucketing
import Storage

/// The `profiles` table.
enum ProfileRows {
    /// A row as it is stored.
    typealias Row = (userID: Identifier, record: [UInt8])

    /// The stored record of a user, whatever has expired in it.
    static func find(_ userID: Identifier, on connection: Connection) throws(SQLiteError) -> [UInt8]? {
        var record: [UInt8]?
        try connection.statement("SELECT record FROM profiles WHERE user_id = ?1").run {
            $0.bind(userID.string, at: 1)
        } row: {
            record = $0.bytes(0)
        }
        return record
    }

    /// - Returns: whether there was no row of this user.
    static func insert(
        _ record: ProfileRecord, for userID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> Bool {
        try connection.statement(
            """
            INSERT INTO profiles (user_id, record, expires_at) VALUES (?1, ?2, ?3) ON CONFLICT (user_id) DO NOTHING
            """
        ).change { bind(record, of: userID, to: $0) } > 0
    }

    /// - Returns: whether there was a row of this user.
    static func update(
        _ record: ProfileRecord, for userID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> Bool {
        try connection.statement("UPDATE profiles SET record = ?2, expires_at = ?3 WHERE user_id = ?1")
            .change { bind(record, of: userID, to: $0) } > 0
    }

    private static func bind(_ record: ProfileRecord, of userID: Identifier, to statement: Statement) {
        statement.bind(userID.string, at: 1)
        statement.bind(record.bytes, at: 2)
        statement.bind(record.earliestExpiry, at: 3)
    }

    static func delete(_ userID: Identifier, on connection: Connection) throws(SQLiteError) {
        try connection.statement("DELETE FROM profiles WHERE user_id = ?1").run { $0.bind(userID.string, at: 1) }
    }

    /// Profiles in the order of their user ids' bytes.
    static func page(
        after: Identifier?, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [Row] {
        var rows: [Row] = []
        // No user id is empty, so that all come after the empty text.
        try connection.statement(
            "SELECT user_id, record FROM profiles WHERE user_id > ?1 ORDER BY user_id LIMIT ?2"
        ).run {
            $0.bind(after?.string ?? "", at: 1)
            $0.bind(Int64(limit), at: 2)
        } row: {
            rows.append((Identifier($0.text(0)), $0.bytes(1)))
        }
        return rows
    }

    /// Users in the order of their ids' bytes.
    static func userIDs(
        after: Identifier?, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [Identifier] {
        var userIDs: [Identifier] = []
        try connection.statement("SELECT user_id FROM profiles WHERE user_id > ?1 ORDER BY user_id LIMIT ?2").run {
            $0.bind(after?.string ?? "", at: 1)
            $0.bind(Int64(limit), at: 2)
        } row: {
            userIDs.append(Identifier($0.text(0)))
        }
        return userIDs
    }

    /// Profiles in which something has expired, those that have waited longest first.
    static func expired(
        at now: Timestamp, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [Row] {
        var rows: [Row] = []
        try connection.statement(
            "SELECT user_id, record FROM profiles WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2"
        ).run {
            $0.bind(now, at: 1)
            $0.bind(Int64(limit), at: 2)
        } row: {
            rows.append((Identifier($0.text(0)), $0.bytes(1)))
        }
        return rows
    }

    /// - Throws: ``StorageError/damaged(reason:)`` when the row is damaged, which concerns this user alone.
    static func decode(_ bytes: [UInt8], of userID: Identifier) throws(StorageError) -> ProfileRecord {
        do throws(ProfileRecordDamage) {
            return try ProfileRecord(checking: bytes)
        } catch {
            throw .damaged(reason: "the stored profile of '\(userID)' is damaged: \(error)")
        }
    }
}
