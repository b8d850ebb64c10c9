import Bucketing
import Chronology
import Storage

/// The `profiles` table.
enum ProfileRows {
    /// Returns the stored record of a user, including expired assignments; `nil` if there is none.
    static func find(_ userID: Identifier, on connection: Connection) throws(SQLiteError) -> [UInt8]? {
        try connection.statement("SELECT record FROM profiles WHERE user_id = ?1").first {
            $0.bind(userID.string, at: 1)
        } row: {
            $0.bytes(0)
        }
    }

    /// Inserts the profile of a user.
    ///
    /// - Returns: `false` if the user has a row already; nothing was written then.
    static func insert(
        _ record: ProfileRecord, for userID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> Bool {
        try connection.statement(
            """
            INSERT INTO profiles (user_id, record, expires_at) VALUES (?1, ?2, ?3) ON CONFLICT (user_id) DO NOTHING
            """
        ).change { bind(record, of: userID, to: $0) } > 0
    }

    /// Replaces the profile of a user.
    ///
    /// - Returns: `false` if the user has no row.
    static func update(
        _ record: ProfileRecord, for userID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> Bool {
        try connection.statement("UPDATE profiles SET record = ?2, expires_at = ?3 WHERE user_id = ?1")
            .change { bind(record, of: userID, to: $0) } > 0
    }

    private static func bind(_ record: ProfileRecord, of userID: Identifier, to statement: Statement) {
        statement.bind(userID.string, at: 1)
        statement.bind(record.bytes, at: 2)
        statement.bind(record.earliestExpiry?.milliseconds, at: 3)
    }

    static func delete(_ userID: Identifier, on connection: Connection) throws(SQLiteError) {
        try connection.statement("DELETE FROM profiles WHERE user_id = ?1").run { $0.bind(userID.string, at: 1) }
    }

    /// Returns the next users with a profile, in the byte order of their ids.
    ///
    /// - Parameter after: the last user of the previous call; `nil` for the first call.
    static func userIDs(
        after: Identifier?, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [Identifier] {
        try connection.all(
            "SELECT user_id FROM profiles WHERE user_id > ?1 ORDER BY user_id LIMIT ?2", .text(after?.string ?? ""),
            .integer(limit)
        ) { $0.identifier(0) }
    }

    /// Returns profiles with expired assignments, oldest expiry first.
    static func expired(
        at now: Instant, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [(userID: Identifier, record: [UInt8])] {
        try connection.all(
            "SELECT user_id, record FROM profiles WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2",
            .instant(now), .integer(limit)
        ) { ($0.identifier(0), $0.bytes(1)) }
    }
}
