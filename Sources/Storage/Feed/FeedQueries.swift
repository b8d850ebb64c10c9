import Bucketing

/// A page of the feed: consecutive rows, and the extent of the feed at the time of the read.
public struct FeedPage: Sendable {
    /// See ``FeedState/epoch``; 0 if there is no feed.
    public var epoch: Int64
    /// The smallest row number from which no row has been deleted.
    public var start: Int64
    /// The greatest row number up to which everything has been read. For a full page this is the number of the last
    /// row; otherwise it is the number of the last row that no open transaction can precede.
    public var end: Int64
    /// The rows in the order of their numbers, without the entries of users who have been erased since.
    public var rows: [FeedRow]
    /// Whether all transactions that might precede the newest row have ended. Otherwise the page is empty, and the
    /// reader should try again.
    public var isSettled: Bool
    /// The greatest row number up to which all transactions are known to have ended; 0 if this is unknown.
    public internal(set) var settledTo: Int64 = 0

    public init(epoch: Int64, start: Int64, end: Int64, rows: [FeedRow], isSettled: Bool = true) {
        self.epoch = epoch
        self.start = start
        self.end = end
        self.rows = rows
        self.isSettled = isSettled
    }

    /// Whether reading can continue at a cursor: the cursor belongs to this feed, no row after it has been deleted, and
    /// it is not beyond the next row.
    public func has(_ cursor: FeedCursor) -> Bool {
        epoch != 0 && cursor.epoch == epoch && (start...nextNumber).contains(cursor.number)
    }

    /// The cursor after the last row.
    public var next: FeedCursor { FeedCursor(epoch: epoch, number: nextNumber, lines: 0) }

    /// The smallest number that the next row may have. All rows of an empty feed may have been deleted, so ``start``
    /// may be greater than ``end``.
    private var nextNumber: Int64 { max(end, start - 1) + 1 }
}

extension StoreQuery<FeedPage> {
    /// Reads rows of the feed in the order of their numbers. In PostgreSQL the read may wait about a second for open
    /// transactions and blocks the session meanwhile, so the session should have nothing else to do.
    ///
    /// - Parameters:
    ///   - number: the number of the first row.
    ///   - limit: the maximum number of rows; 0 to read only the extent of the feed.
    ///   - settled: ``FeedPage/settledTo`` of an earlier page of the same epoch; 0 if there is none. Rows up to this
    ///     number are read without waiting.
    public static func feed(from number: Int64, limit: Int, settledTo settled: Int64 = 0) -> Self {
        Self(.feed(from: number, limit: limit)) { context in
            switch context.dialect {
            case .sqlite: sqliteRows(from: number, limit, context)
            case .postgreSQL:
                number <= settled && limit > 0
                    ? knownSettledRows(from: number, to: settled, limit, context)
                    : settledRows(from: number, limit, context)
            }
        }
    }

    /// The columns in the order of ``FeedRow/init(_:)``.
    private static let columns = "number, recorded_at, entries"

    /// A page without rows, whose extent ``setExtent(of:_:)`` sets.
    private static func emptyPage(end: Int64 = 0, isSettled: Bool = true) -> FeedPage {
        FeedPage(epoch: 0, start: 1, end: end, rows: [], isSettled: isSettled)
    }

    /// Sets the epoch and the start of a page.
    ///
    /// - Parameter row: the row that ``FeedState/read`` selects.
    private static func setExtent(of page: inout FeedPage, _ row: any Row) {
        let state = FeedState(row)
        page.epoch = state.epoch
        page.start = state.deletedTo + 1
    }

    // MARK: SQLite

    /// Reads rows in SQLite, which commits one transaction after the other: every new row comes after the existing
    /// rows.
    private static func sqliteRows(from number: Int64, _ limit: Int, _ context: ReadingContext) -> Reading<FeedPage> {
        var page = emptyPage()
        var hasRemovals = false
        return Reading([
            (FeedState.read, { setExtent(of: &page, $0) }),
            (FeedState.lastNumber(.sqlite), { page.end = $0.bounded(0) }),
            (
                SQLQuery(
                    "feed_rows", "SELECT \(columns) FROM feed WHERE number >= $1 ORDER BY number LIMIT $2",
                    .integer(number), .integer(limit)),
                { page.rows.append(FeedRow($0)) }
            ),
            removalsExist(from: number) { hasRemovals = $0 },
        ]) { () throws(StorageError) in try finish(page, limit, hasRemovals: hasRemovals, context) }
    }

    // MARK: PostgreSQL

    /// Reads rows in PostgreSQL. Transactions overlap there, so a transaction with a lower row number may commit later.
    /// A page must end before the first row that an open transaction may still add. These functions read it:
    ///
    /// 1. ``settledRows(from:_:_:)`` reads `last`, the greatest row number that any transaction has drawn.
    /// 2. ``rows(from:to:_:_:)`` lets the database assign a new transaction id.
    /// 3. ``rows(from:to:after:_:attempts:_:)`` waits until all transactions with lower ids have ended, and reads the
    ///    rows up to `last`.
    ///
    /// Why this is sufficient: a transaction writes before it draws a row number, and gets its id at its first write.
    /// All transactions that have drawn a number up to `last` therefore have lower ids than the new one. When the xmin
    /// of a snapshot has reached the new id, these transactions have ended, and the snapshot sees every row up to
    /// `last` that will ever exist. The xmax of a snapshot is not sufficient: it is the lowest id that has not ended,
    /// not the next id to be assigned.
    ///
    /// A transaction locks the rows of its users before it draws a number, so that two transactions about one user have
    /// numbers in the order of their commits.
    private static func settledRows(from number: Int64, _ limit: Int, _ context: ReadingContext) -> Reading<FeedPage> {
        var page = emptyPage()
        let number = max(number, 1)
        return Reading([
            (FeedState.read, { setExtent(of: &page, $0) }),
            (FeedState.lastNumber(.postgreSQL), { page.end = $0.bounded(0) }),
        ]) {
            // No transaction has drawn this number yet, so there is nothing to wait for. With a limit of 0 the caller
            // asks for the end, and the read must still wait.
            guard page.end >= number || limit == 0 else { return .value(page) }
            return .more(rows(from: number, to: page.end, limit, context))
        }
    }

    /// Reads rows up to a number without waiting, because an earlier page has shown that all transactions up to this
    /// number have ended. If these rows do not fill the page, ``settledRows(from:_:_:)`` reads it instead.
    private static func knownSettledRows(
        from number: Int64, to settled: Int64, _ limit: Int, _ context: ReadingContext
    ) -> Reading<FeedPage> {
        var page = emptyPage(end: settled)
        var hasRemovals = false
        return Reading([
            (FeedState.read, { setExtent(of: &page, $0) }),
            (
                SQLQuery(
                    "feed_known_rows",
                    "SELECT \(columns) FROM feed WHERE number >= $1 AND number <= $2 ORDER BY number LIMIT $3",
                    .integer(number), .integer(settled), .integer(limit)),
                { page.rows.append(FeedRow($0)) }
            ),
            removalsExist(from: number) { hasRemovals = $0 },
        ]) { () throws(StorageError) in
            guard page.rows.count == limit else { return .more(settledRows(from: number, limit, context)) }
            return try finish(page, limit, hasRemovals: hasRemovals, context)
        }
    }

    /// Draws a new transaction id, and reads the rows up to `last` once all transactions with lower ids have ended.
    private static func rows(
        from number: Int64, to last: Int64, _ limit: Int, _ context: ReadingContext
    ) -> Reading<FeedPage> {
        var transaction = ""
        let query = SQLQuery("feed_transaction", "SELECT pg_current_xact_id()::text")
        return Reading([(query, { transaction = $0.text(0) })]) {
            .more(rows(from: number, to: last, after: transaction, limit, attempts: settlingAttempts, context))
        }
    }

    /// The maximum number of checks whether open transactions have ended, 2 ms apart: about one second.
    private static let settlingAttempts = 500

    /// Reads the rows up to `last` if all transactions with ids below `transaction` have ended. Otherwise pauses for
    /// 2 ms and tries again. After the last attempt the page is empty and not settled.
    private static func rows(
        from number: Int64, to last: Int64, after transaction: String, _ limit: Int, attempts: Int,
        _ context: ReadingContext
    ) -> Reading<FeedPage> {
        var page = emptyPage(end: last, isSettled: false)
        var hasRemovals = false
        let isSettled = "pg_snapshot_xmin(pg_current_snapshot()) >= $1::text::xid8"
        return Reading([
            (FeedState.read, { setExtent(of: &page, $0) }),
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
            removalsExist(from: number) { hasRemovals = $0 },
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
            return try finish(page, limit, hasRemovals: hasRemovals, context)
        }
    }

    // MARK: Erased users

    /// Returns the step that reads whether there are erasures or merges that apply to rows from this number on.
    ///
    /// - Parameter take: called with `true` if there are any erasures or merges, and not called if there are none.
    private static func removalsExist(
        from number: Int64, _ take: @escaping (Bool) -> Void
    ) -> Reading<FeedPage>.Step {
        (
            SQLQuery(
                "feed_removals_exist", "SELECT 1 FROM feed_removals WHERE number >= $1 LIMIT 1", .integer(number)),
            { _ in take(true) }
        )
    }

    /// Sets the end of a page. If erasures or merges may apply to its rows, also removes the entries of erased users.
    private static func finish(
        _ page: FeedPage, _ limit: Int, hasRemovals: Bool, _ context: ReadingContext
    ) throws(StorageError) -> Reading<FeedPage>.Outcome {
        var page = page
        // The end of a full page is its last row; more rows may follow.
        if let last = page.rows.last, page.rows.count == limit { page.end = last.number }
        guard hasRemovals, let first = page.rows.first, let last = page.rows.last else { return .value(page) }
        let removalsQuery = try selectRemovals(of: page.rows, context.dialect)
        // The rows and the removals must come from one snapshot, because a removal is deleted once the rows have been
        // overwritten. So the rows are read once more, together with the removals.
        let rowsQuery = SQLQuery(
            "feed_rows_again", "SELECT \(columns) FROM feed WHERE number >= $1 AND number <= $2 ORDER BY number",
            .integer(first.number), .integer(last.number))
        var removals: [FeedRemoval] = []
        page.rows = []
        return .more(
            Reading([
                (rowsQuery, { page.rows.append(FeedRow($0)) }), (removalsQuery, { removals.append(FeedRemoval($0)) }),
            ]) { () throws(StorageError) in
                page.rows = try scrubbed(page.rows, removals)
                return .value(page)
            })
    }

    /// Selects the removals of all users with entries in some rows.
    private static func selectRemovals(
        of rows: [FeedRow], _ dialect: SQLDialect
    ) throws(StorageError) -> SQLQuery {
        var hashes: Set<Int64> = []
        for row in rows { hashes.formUnion(try row.userHashes()) }
        let list = hashes.map(String.init).joined(separator: ",")
        let condition =
            switch dialect {
            case .sqlite: "user_hash IN (SELECT value FROM json_each('[' || $1 || ']'))"
            case .postgreSQL: "user_hash = ANY (string_to_array($1, ',')::bigint[])"
            }
        return SQLQuery(
            "feed_removals_of", "SELECT \(FeedRemoval.columns) FROM feed_removals WHERE \(condition)", .text(list))
    }

    /// Returns rows without the entries of erased users.
    private static func scrubbed(
        _ rows: [FeedRow], _ removals: [FeedRemoval]
    ) throws(StorageError) -> [FeedRow] {
        var scrubbed: [FeedRow] = []
        for row in rows { scrubbed.append(try row.scrubbed(by: removals)) }
        return scrubbed
    }
}

extension FeedRow {
    /// - Parameter row: a number, a time and entries.
    package init(_ row: any Row) {
        self.init(number: row.integer(0), recordedAt: row.instant(1), entries: row.bytes(2))
    }
}
