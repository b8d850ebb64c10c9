import Bucketing

/// A page of the feed: consecutive rows, and what is known about the feed around them.
public struct FeedPage: Sendable {
    /// See ``FeedState/epoch``; 0 if there is no feed.
    public var epoch: Int64
    /// The smallest number from which the feed is complete.
    public var start: Int64
    /// The number up to which everything has been read: that of the last row of the page, or of the last committed row
    /// that no open transaction can precede.
    public var end: Int64
    /// The rows in the order of their numbers, without the entries of users who have been erased since.
    public var rows: [FeedRow]
    /// Whether all transactions that might precede the newest row have ended. If not, the page is empty.
    public var isSettled: Bool
    /// The number up to which all transactions are known to have ended; 0 if this was not determined.
    public internal(set) var settledTo: Int64 = 0

    public init(epoch: Int64, start: Int64, end: Int64, rows: [FeedRow], isSettled: Bool = true) {
        self.epoch = epoch
        self.start = start
        self.end = end
        self.rows = rows
        self.isSettled = isSettled
    }

    /// Whether a cursor belongs to this feed, and nothing after it has been deleted.
    public func has(_ cursor: FeedCursor) -> Bool {
        epoch != 0 && cursor.epoch == epoch && cursor.number >= start && cursor.number <= max(end, start - 1) + 1
    }

    /// The cursor after the last row.
    public var next: FeedCursor { FeedCursor(epoch: epoch, number: max(end, start - 1) + 1, lines: 0) }
}

extension StoreQuery<FeedPage> {
    /// Reads rows of the feed in the order of their numbers. PostgreSQL may wait for open transactions, so the session
    /// should have nothing else to do.
    ///
    /// - Parameters:
    ///   - number: the number of the first row.
    ///   - limit: the maximum number of rows; 0 to find only the end.
    ///   - settled: ``FeedPage/settledTo`` of an earlier page of the same epoch. Transactions up to this number are not
    ///     waited for.
    public static func feed(from number: Int64, limit: Int, settledTo settled: Int64 = 0) -> Self {
        Self(.feed(from: number, limit: limit)) { context in
            switch context.dialect {
            case .sqlite: rows(from: number, limit, context)
            case .postgreSQL:
                number <= settled && limit > 0
                    ? rows(from: number, settledTo: settled, limit, context) : settledRows(from: number, limit, context)
            }
        }
    }

    private static let columns = "number, recorded_at, entries"

    private static func state(_ page: inout FeedPage, _ row: any Row) {
        let state = FeedState(row)
        page.epoch = state.epoch
        page.start = state.deletedTo + 1
    }

    /// Reads rows of SQLite. It commits one transaction after the other, so no row can appear before one that exists.
    private static func rows(from number: Int64, _ limit: Int, _ context: ReadingContext) -> Reading<FeedPage> {
        var page = FeedPage(epoch: 0, start: 1, end: 0, rows: [])
        var areRemoved = false
        return Reading([
            (FeedState.read, { state(&page, $0) }),
            (FeedState.lastNumber(.sqlite), { page.end = $0.integer(0) }),
            (
                SQLQuery(
                    "feed_rows", "SELECT \(columns) FROM feed WHERE number >= $1 ORDER BY number LIMIT $2",
                    .integer(number), .integer(limit)),
                { page.rows.append(FeedRow($0)) }
            ),
            removalsExist(from: number) { areRemoved = $0 },
        ]) { () throws(StorageError) in try finish(page, limit, areRemoved: areRemoved, context) }
    }

    /// Reads rows of PostgreSQL. Its transactions overlap, so one with a lower number may commit later. A page must end
    /// before the first row that an open transaction may still add. It is read in these steps:
    ///
    /// 1. ``settledRows(from:_:_:)`` reads `last`, the last number that any transaction has drawn. 2.
    /// ``rows(from:to:_:_:)`` lets the database assign a new transaction id. 3. ``rows(from:to:after:_:attempts:_:)``
    /// waits until all transactions with lower ids have ended, and reads the rows
    ///    up to `last`.
    ///
    /// Why this is sufficient: a transaction has its id before it draws a number, because it has written before. All
    /// transactions that have drawn a number up to `last` therefore have lower ids than the new one. When the xmin of a
    /// snapshot has reached the new id, these transactions have ended, and the snapshot sees every row up to `last`
    /// that will ever exist. The xmax of a snapshot is not sufficient: it is the lowest id that has not ended, not the
    /// next one to be assigned.
    ///
    /// The rows of users are locked before the number is drawn, so that two transactions about one user have numbers in
    /// the order of their commits.
    private static func settledRows(from number: Int64, _ limit: Int, _ context: ReadingContext) -> Reading<FeedPage> {
        var page = FeedPage(epoch: 0, start: 1, end: 0, rows: [])
        let number = max(number, 1)
        return Reading([
            (FeedState.read, { state(&page, $0) }), (FeedState.lastNumber(.postgreSQL), { page.end = $0.integer(0) }),
        ]) {
            // There are no rows from this number on, not even of open transactions.
            guard page.end >= number || limit == 0 else { return .value(page) }
            return .more(rows(from: number, to: page.end, limit, context))
        }
    }

    /// Reads rows of PostgreSQL up to a number of which an earlier page has shown that all transactions have ended. If
    /// these rows do not fill the page, it reads as ``settledRows(from:_:_:)`` does.
    private static func rows(
        from number: Int64, settledTo settled: Int64, _ limit: Int, _ context: ReadingContext
    ) -> Reading<FeedPage> {
        var page = FeedPage(epoch: 0, start: 1, end: settled, rows: [])
        var areRemoved = false
        return Reading([
            (FeedState.read, { state(&page, $0) }),
            (
                SQLQuery(
                    "feed_known_rows",
                    "SELECT \(columns) FROM feed WHERE number >= $1 AND number <= $2 ORDER BY number LIMIT $3",
                    .integer(number), .integer(settled), .integer(limit)),
                { page.rows.append(FeedRow($0)) }
            ),
            removalsExist(from: number) { areRemoved = $0 },
        ]) { () throws(StorageError) in
            guard page.rows.count == limit else { return .more(settledRows(from: number, limit, context)) }
            return try finish(page, limit, areRemoved: areRemoved, context)
        }
    }

    /// Reads the rows up to `last`, after waiting for the transactions that have drawn a number up to it.
    private static func rows(
        from number: Int64, to last: Int64, _ limit: Int, _ context: ReadingContext
    ) -> Reading<FeedPage> {
        var transaction = ""
        let query = SQLQuery("feed_transaction", "SELECT pg_current_xact_id()::text")
        return Reading([(query, { transaction = $0.text(0) })]) {
            .more(rows(from: number, to: last, after: transaction, limit, attempts: settlingAttempts, context))
        }
    }

    /// The maximum number of checks whether open transactions have ended, 2 ms apart.
    private static let settlingAttempts = 500

    /// Reads the rows up to `last` once the transactions with ids below `transaction` have ended. Otherwise it pauses
    /// and tries again; after the last attempt the page is empty and not settled.
    private static func rows(
        from number: Int64, to last: Int64, after transaction: String, _ limit: Int, attempts: Int,
        _ context: ReadingContext
    ) -> Reading<FeedPage> {
        var page = FeedPage(epoch: 0, start: 1, end: last, rows: [], isSettled: false)
        var areRemoved = false
        let isSettled = "pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8"
        return Reading([
            (FeedState.read, { state(&page, $0) }),
            (
                SQLQuery("feed_settled", "SELECT (\(isSettled))::integer::bigint", .text(transaction)),
                { page.isSettled = $0.integer(0) != 0 }
            ),
            (
                SQLQuery(
                    "feed_settled_rows",
                    """
                    SELECT \(columns) FROM feed WHERE \(isSettled) AND number >= $2 AND number <= $3
                    ORDER BY number LIMIT $4
                    """, .text(transaction), .integer(number), .integer(last), .integer(limit)),
                { page.rows.append(FeedRow($0)) }
            ),
            removalsExist(from: number) { areRemoved = $0 },
            (
                SQLQuery(
                    "feed_pause", "SELECT pg_sleep(CASE WHEN \(isSettled) THEN 0 ELSE 0.002 END)", .text(transaction)),
                { _ in }
            ),
        ]) { () throws(StorageError) in
            if page.isSettled { page.settledTo = last } else { page.end = number - 1 }
            guard page.isSettled || attempts == 0 else {
                return .more(
                    rows(from: number, to: last, after: transaction, limit, attempts: attempts - 1, context))
            }
            return try finish(page, limit, areRemoved: areRemoved, context)
        }
    }

    /// The step that reads whether any erasures or merges concern rows from this number on.
    private static func removalsExist(
        from number: Int64, _ take: @escaping (Bool) -> Void
    ) -> Reading<FeedPage>.Step {
        (
            SQLQuery(
                "feed_removals_exist", "SELECT 1 FROM feed_removals WHERE number >= $1 LIMIT 1", .integer(number)),
            { _ in take(true) }
        )
    }

    /// Finishes a page. If erasures or merges concern its rows, these are read again without the entries of erased
    /// users.
    private static func finish(
        _ page: FeedPage, _ limit: Int, areRemoved: Bool, _ context: ReadingContext
    ) throws(StorageError) -> Reading<FeedPage>.Outcome {
        var page = page
        // The end of a full page is its last row; more rows may follow.
        if let last = page.rows.last, page.rows.count == limit { page.end = last.number }
        guard areRemoved, !page.rows.isEmpty else { return .value(page) }
        var hashes: Set<Int64> = []
        for row in page.rows { hashes.formUnion(try row.userHashes()) }
        let list = hashes.map(String.init).joined(separator: ",")
        let condition =
            switch context.dialect {
            case .sqlite: "user_hash IN (SELECT value FROM json_each('[' || $1 || ']'))"
            case .postgreSQL: "user_hash = ANY (string_to_array($1, ',')::bigint[])"
            }
        let query = SQLQuery(
            "feed_removals_of", "SELECT \(FeedRemoval.columns) FROM feed_removals WHERE \(condition)", .text(list))
        // The rows are read again, because they and the removals must come from one snapshot: a removal is deleted once
        // the rows have been overwritten.
        let again = SQLQuery(
            "feed_rows_again", "SELECT \(columns) FROM feed WHERE number >= $1 AND number <= $2 ORDER BY number",
            .integer(page.rows[0].number), .integer(page.rows[page.rows.count - 1].number))
        var removals: [FeedRemoval] = []
        page.rows = []
        return .more(
            Reading([(again, { page.rows.append(FeedRow($0)) }), (query, { removals.append(FeedRemoval($0)) })]) {
                () throws(StorageError) in
                page.rows = try scrubbed(page.rows, removals)
                return .value(page)
            })
    }

    private static func scrubbed(
        _ rows: [FeedRow], _ removals: [FeedRemoval]
    ) throws(StorageError) -> [FeedRow] {
        var scrubbed: [FeedRow] = []
        for row in rows { scrubbed.append(try row.scrubbed(by: removals)) }
        return scrubbed
    }
}

extension FeedRow {
    package init(_ row: any Row) {
        self.init(number: row.integer(0), recordedAt: row.instant(1), entries: row.bytes(2))
    }
}
