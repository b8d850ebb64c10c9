import Bucketing

extension StoreQuery<[AuditEntry]> {
    /// Finds entries of the audit log, newest first. All members of the query that are not `nil` must match.
    public static func auditEntries(_ query: AuditQuery) -> Self {
        Self(.auditEntries(query)) { _ in
            let sql = """
                SELECT \(StoredTable.audit.columnList) FROM audit
                WHERE ($1 IS NULL OR author = $1) AND ($2 IS NULL OR action = $2) AND ($3 IS NULL OR user_id = $3)
                    AND ($4 IS NULL OR target = $4) AND ($5 IS NULL OR recorded_at >= $5)
                    AND ($6 IS NULL OR recorded_at < $6) AND ($7 IS NULL OR id < $7)
                ORDER BY id DESC LIMIT $8
                """
            var reading = Reading<[AuditEntry]>.all(
                SQLQuery(
                    "find_audit", sql, .text(query.author), .text(query.action?.rawValue),
                    .text(query.userID), .text(query.target), .instant(query.since), .instant(query.until),
                    .integer(query.after), .integer(query.limit))
            ) { AuditEntry($0) }
            // Each parameter may be NULL, so the best index depends on the values.
            reading.dependsOnValues = true
            return reading
        }
    }
}

// MARK: The tail of the log

extension StoreQuery<[AuditEntry]> {
    /// Reads entries of the audit log in the order of their ids. No entry can appear later before an entry that was
    /// read. In PostgreSQL the read may wait about a second for open transactions and blocks the session meanwhile, so
    /// the session should have nothing else to do.
    ///
    /// - Parameters:
    ///   - id: only entries with greater ids are read.
    ///   - limit: the maximum number of entries.
    public static func auditTail(after id: Int64, limit: Int) -> Self {
        Self(.auditTail(after: id, limit: limit)) { context in
            switch context.dialect {
            case .sqlite:
                let sql =
                    "SELECT \(StoredTable.audit.columnList) FROM audit WHERE id > $1 ORDER BY id LIMIT $2"
                return .all(SQLQuery("audit_tail", sql, .integer(id), .integer(limit))) { AuditEntry($0) }
            case .postgreSQL: return settledEntries(after: id, limit)
            }
        }
    }

    /// Reads entries in PostgreSQL after waiting for open transactions, as ``StoreQuery/feed(from:limit:settledTo:)``
    /// does. Transactions overlap, so a transaction with a lower entry id may commit later. All transactions that have
    /// drawn an entry id up to the last one have lower transaction ids than a transaction that begins now.
    private static func settledEntries(after id: Int64, _ limit: Int) -> Reading<[AuditEntry]> {
        var last: Int64 = 0
        return Reading([(SharedRecords.lastAuditEntry, { last = $0.integer(0) })]) {
            guard last > id else { return .value([]) }
            var transaction = ""
            let begin = SQLQuery("audit_transaction", "SELECT pg_current_xact_id()::text")
            return .more(
                Reading([(begin, { transaction = $0.text(0) })]) {
                    .more(entries(after: id, to: last, limit, once: transaction, attempts: settlingAttempts))
                })
        }
    }

    /// The maximum number of checks whether open transactions have ended, 2 ms apart: about one second.
    private static var settlingAttempts: Int { 500 }

    /// Reads the entries up to `last` if all transactions with ids below `transaction` have ended. Otherwise pauses for
    /// 2 ms and tries again. After the last attempt the result is empty.
    private static func entries(
        after id: Int64, to last: Int64, _ limit: Int, once transaction: String, attempts: Int
    ) -> Reading<[AuditEntry]> {
        let isSettled = "pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8"
        var found: [AuditEntry] = []
        var haveEnded = false
        return Reading([
            (
                SQLQuery("audit_settled", "SELECT (\(isSettled))::integer::bigint", .text(transaction)),
                { haveEnded = $0.integer(0) != 0 }
            ),
            (
                SQLQuery(
                    "audit_tail",
                    """
                    SELECT \(StoredTable.audit.columnList) FROM audit WHERE \(isSettled) AND id > $2 AND id <= $3
                    ORDER BY id LIMIT $4
                    """, .text(transaction), .integer(id), .integer(last), .integer(limit)),
                { found.append(AuditEntry($0)) }
            ),
            (
                SQLQuery(
                    "audit_pause", "SELECT pg_sleep(CASE WHEN \(isSettled) THEN 0 ELSE 0.002 END)", .text(transaction)),
                { _ in }
            ),
        ]) {
            if haveEnded { return .value(found) }
            guard attempts > 0 else { return .value([]) }
            return .more(entries(after: id, to: last, limit, once: transaction, attempts: attempts - 1))
        }
    }
}

extension SharedRecords {
    /// Reads the greatest id of an audit entry; 0 if there is none.
    package static var lastAuditEntry: SQLQuery { SQLQuery("last_audit", "SELECT coalesce(max(id), 0) FROM audit") }
}
