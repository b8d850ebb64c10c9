import Bucketing
import JSON
import Storage

/// The `audit` table.
enum AuditRows {
    /// Bytes of what was before, or is after, a change. Beyond them only their number is kept.
    private static let detailLimit = 4_096
    /// Bytes of what an entry is about.
    private static let targetLimit = 1_024

    static func insert(
        _ note: AuditNote, by author: Author, at now: Timestamp, on connection: Connection
    ) throws(SQLiteError) {
        try connection.statement(
            """
            INSERT INTO audit (recorded_at, author, request_id, action, user_id, target, before, after)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
            """
        ).run {
            $0.bind(now, at: 1)
            $0.bind(author.name, at: 2)
            $0.bind(author.requestID, at: 3)
            $0.bind(note.action.rawValue, at: 4)
            $0.bind(note.userID?.string, at: 5)
            $0.bind(String(decoding: note.target.utf8.prefix(targetLimit), as: UTF8.self), at: 6)
            $0.bind(detail(note.before), at: 7)
            $0.bind(detail(note.after), at: 8)
        }
    }

    private static func detail(_ value: JSONValue) -> String? {
        guard !value.isNull else { return nil }
        let bytes = value.encoded()
        guard bytes.count > detailLimit else { return String(decoding: bytes, as: UTF8.self) }
        let omitted: JSONValue = ["omitted_bytes": .integer(Int64(bytes.count))]
        return String(decoding: omitted.encoded(), as: UTF8.self)
    }

    /// Entries, the newest first.
    static func find(_ query: AuditQuery, on connection: Connection) throws(SQLiteError) -> [AuditEntry] {
        var entries: [AuditEntry] = []
        try connection.statement(
            """
            SELECT id, recorded_at, author, request_id, action, user_id, target, before, after FROM audit
            WHERE (?1 IS NULL OR author = ?1) AND (?2 IS NULL OR action = ?2) AND (?3 IS NULL OR user_id = ?3)
                AND (?4 IS NULL OR target = ?4) AND (?5 IS NULL OR recorded_at >= ?5)
                AND (?6 IS NULL OR recorded_at < ?6) AND (?7 IS NULL OR id < ?7)
            ORDER BY id DESC LIMIT ?8
            """
        ).run {
            $0.bind(query.author, at: 1)
            $0.bind(query.action?.rawValue, at: 2)
            $0.bind(query.userID?.string, at: 3)
            $0.bind(query.target, at: 4)
            $0.bind(query.since, at: 5)
            $0.bind(query.until, at: 6)
            $0.bind(query.after, at: 7)
            $0.bind(Int64(query.limit), at: 8)
        } row: {
            entries.append(decode($0))
        }
        return entries
    }

    private static func decode(_ row: Statement) -> AuditEntry {
        func optional(_ column: Int32) -> String? { row.isNull(column) ? nil : row.text(column) }
        return AuditEntry(
            id: row.integer(0), recordedAt: row.integer(1), author: Author(name: row.text(2), requestID: row.text(3)),
            action: row.text(4), userID: optional(5).map { Identifier($0) }, target: row.text(6),
            before: optional(7).map { Array($0.utf8) }, after: optional(8).map { Array($0.utf8) })
    }

    /// Takes a user out of the entries: who it was, and what the user had. That something was done, when and by whom
    /// stays.
    static func erase(_ userID: Identifier, in transaction: WriteTransaction) throws(SQLiteError) {
        let count = try transaction.connection.statement(
            "UPDATE audit SET user_id = NULL, before = NULL, after = NULL WHERE user_id = ?1"
        ).change { $0.bind(userID.string, at: 1) }
        if count > 0 { transaction.changed() }
    }

    /// Deletes entries recorded before a moment, the oldest first.
    ///
    /// - Returns: how many.
    static func prune(before moment: Timestamp, limit: Int, in transaction: WriteTransaction) throws(SQLiteError) -> Int {
        let pruned = try transaction.connection.statement(
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE recorded_at < ?1 ORDER BY recorded_at LIMIT ?2)"
        ).change {
            $0.bind(moment, at: 1)
            $0.bind(Int64(limit), at: 2)
        }
        if pruned > 0 { transaction.changed() }
        return pruned
    }
}

extension WriteTransaction {
    /// Records an admin's change in the audit log. It is there if and only if what else this transaction does is.
    func record(_ note: AuditNote, by author: Author, at now: Timestamp) throws(SQLiteError) {
        try AuditRows.insert(note, by: author, at: now, on: connection)
        recorded()
    }
}
