/// A pass that overwrites the entries of erased users in the stored feed, row by row, oldest first. Stores run it in
/// the background: they read with ``query`` and ``removals``, pass the rows to ``take(_:_:)``, and execute the
/// statements that it returns, until ``isComplete``.
///
/// At its end, a pass deletes the erasures that it covers, because no entry of these users is left. A pass that a
/// restart of the process interrupts begins again.
package struct FeedScrubbing: Sendable {
    /// The number of rows that are read at once.
    package static let rows = 64
    /// The number of the row with the newest erasure that this pass covers.
    package let newestErasure: Int64
    /// The number from which rows are read next.
    package private(set) var next: Int64 = 0

    package init(newestErasure: Int64) {
        self.newestErasure = newestErasure
    }

    /// Whether the pass has reached its end.
    package var isComplete: Bool { next > newestErasure }

    /// Reads the next rows in their stored form.
    package var query: SQLQuery {
        SQLQuery(
            "feed_scrubbed_rows",
            """
            SELECT number, recorded_at, entries FROM feed WHERE number >= $1 AND number <= $2
            ORDER BY number LIMIT $3
            """, .integer(next), .integer(newestErasure), .integer(Self.rows))
    }

    /// Reads the erasures and merges.
    package static let removals = SQLQuery("feed_removals", "SELECT \(FeedRemoval.columns) FROM feed_removals")

    /// Processes the rows that were read, and advances.
    ///
    /// - Returns: the statements that overwrite rows, and at the end of the pass delete the erasures.
    package mutating func take(_ rows: [FeedRow], _ removals: [FeedRemoval]) -> [SQLQuery] {
        next = rows.count < Self.rows ? newestErasure + 1 : (rows.last?.number ?? newestErasure) + 1
        let updates: [SQLQuery] = rows.compactMap { row in
            // A damaged row is left to readers, which report it.
            guard let scrubbed = try? row.scrubbed(by: removals), scrubbed.entries != row.entries else { return nil }
            return SQLQuery(
                "feed_scrub", "UPDATE feed SET entries = $2 WHERE number = $1", .integer(row.number),
                .bytes(scrubbed.entries))
        }
        return isComplete ? updates + [FeedRemoval.forgetErasures(to: newestErasure)] : updates
    }
}

extension FeedRemoval {
    /// Selects the number of the row with the newest erasure, up to which rows must be overwritten; no row if there is
    /// none.
    package static let newestErasure = SQLQuery(
        "feed_newest_erasure",
        "SELECT max(number) FROM feed_removals WHERE account_hash IS NULL HAVING max(number) IS NOT NULL")

    /// Deletes all erasures after a pass, unless an erasure came during the pass. That one may include ids that were
    /// merged into its user earlier, so the rows must be overwritten once more.
    package static func forgetErasures(to newest: Int64) -> SQLQuery {
        SQLQuery(
            "feed_forget_erasures",
            """
            DELETE FROM feed_removals WHERE account_hash IS NULL
                AND (SELECT max(number) FROM feed_removals WHERE account_hash IS NULL) = $1
            """, .integer(newest))
    }
}
