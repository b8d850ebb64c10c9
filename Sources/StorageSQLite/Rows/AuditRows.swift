import Bucketing
import JSON
import Storage

/// The `audit` table.
enum AuditRows {
    static func insert(_ entry: AuditEntry, on connection: Connection) throws(SQLiteError) {
        try connection.statement(
            """
            INSERT INTO audit (recorded_at, author, request_id, action, user_id, target, before, after)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
            """
        ).run {
            $0.bind(entry.recordedAt, at: 1)
            $0.bind(entry.author.name, at: 2)
            $0.bind(entry.author.requestID, at: 3)
            $0.bind(entry.action, at: 4)
            $0.bind(entry.userID?.string, at: 5)
            $0.bind(entry.target, at: 6)
            $0.bind(entry.before.map { String(decoding: $0, as: UTF8.self) }, at: 7)
            $0.bind(entry.after.map { String(decoding: $0, as: UTF8.self) }, at: 8)
        }
    }

    /// Finds entries, newest first.
    static func find(_ query: AuditQuery, on connection: Connection) throws(SQLiteError) -> [AuditEntry] {
        try connection.statement(
            """
            SELECT id, recorded_at, author, request_id, action, user_id, target, before, after FROM audit
            WHERE (?1 IS NULL OR author = ?1) AND (?2 IS NULL OR action = ?2) AND (?3 IS NULL OR user_id = ?3)
                AND (?4 IS NULL OR target = ?4) AND (?5 IS NULL OR recorded_at >= ?5)
                AND (?6 IS NULL OR recorded_at < ?6) AND (?7 IS NULL OR id < ?7)
            ORDER BY id DESC LIMIT ?8
            """
        ).all {
            $0.bind(query.author, at: 1)
            $0.bind(query.action?.rawValue, at: 2)
            $0.bind(query.userID?.string, at: 3)
            $0.bind(query.target, at: 4)
            $0.bind(query.since, at: 5)
            $0.bind(query.until, at: 6)
            $0.bind(query.after, at: 7)
            $0.bind(Int64(query.limit), at: 8)
        } row: {
            decode($0)
        }
    }

    private static func decode(_ row: Statement) -> AuditEntry {
        func optional(_ column: Int32) -> String? { row.isNull(column) ? nil : row.text(column) }
        return AuditEntry(
            id: row.integer(0), recordedAt: row.integer(1), author: Author(name: row.text(2), requestID: row.text(3)),
            action: row.text(4), userID: optional(5).map { Identifier($0) }, target: row.text(6),
            before: optional(7).map { Array($0.utf8) }, after: optional(8).map { Array($0.utf8) })
    }

    /// Anonymizes the entries of a user, see ``AuditEntry/anonymize()``.
    static func erase(_ userID: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        let count = try transaction.connection.statement(
            "UPDATE audit SET user_id = NULL, before = NULL, after = NULL WHERE user_id = ?1"
        ).change { $0.bind(userID.string, at: 1) }
        if count > 0 { transaction.changed() }
    }

    /// Makes the entries about one user those about another.
    static func move(
        from former: Identifier, to userID: Identifier, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        let count = try transaction.connection.statement("UPDATE audit SET user_id = ?2 WHERE user_id = ?1").change {
            $0.bind(former.string, at: 1)
            $0.bind(userID.string, at: 2)
        }
        if count > 0 { transaction.changed() }
    }

    /// Deletes entries recorded before a time, oldest first.
    ///
    /// - Returns: the number of deleted entries.
    static func prune(before time: Timestamp, limit: Int, in transaction: WriteTransaction) throws(SQLiteError) -> Int {
        let pruned = try transaction.connection.statement(
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE recorded_at < ?1 ORDER BY recorded_at LIMIT ?2)"
        ).change {
            $0.bind(time, at: 1)
            $0.bind(Int64(limit), at: 2)
        }
        if pruned > 0 { transaction.changed() }
        return pruned
    }
}

extension WriteTransaction {
    /// Records an admin's change in the audit log, in the same transaction as the change.
    func record(_ note: AuditNote, by author: Author, at now: Timestamp) throws(SQLiteError) {
        try AuditRows.insert(AuditEntry(note, by: author, at: now), on: connection)
        recorded()
    }
}
