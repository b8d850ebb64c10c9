/// A pass that overwrites the entries of erased users in the stored feed, row by row, oldest first. A store runs the
/// pass in the background, step by step until ``isComplete``:
///
/// 1. The store reads rows with ``query``, and the erasures and merges with ``removals``.
/// 2. ``take(_:_:)`` returns the statements that overwrite these rows. The store executes them.
///
/// The last step deletes the records of the erasures, because no entry of these users is left. If the process is
/// restarted, the pass begins again at the first row.
package struct FeedScrubbing: Sendable {
    /// The maximum number of rows that one step reads.
    package static let rows = 64
    /// The number of the row with the newest erasure that this pass covers. Later rows are not read.
    package let newestErasure: Int64
    /// The smallest number of the rows that the next step reads.
    package private(set) var next: Int64 = 0

    package init(newestErasure: Int64) {
        self.newestErasure = newestErasure
    }

    /// Whether the pass has reached its end.
    package var isComplete: Bool { next > newestErasure }

    /// Reads the rows of the next step in their stored form, including the entries of erased users.
    package var query: SQLQuery {
        SQLQuery(
            "feed_scrubbed_rows",
            """
            SELECT number, recorded_at, entries FROM feed WHERE number >= $1 AND number <= $2
            ORDER BY number LIMIT $3
            """, .integer(next), .integer(newestErasure), .integer(Self.rows))
    }

    /// Reads all erasures and merges.
    package static let removals = SQLQuery("feed_removals", "SELECT \(FeedRemoval.columns) FROM feed_removals")

    /// Processes the rows that were read, and moves ``next`` behind them.
    ///
    /// - Returns: the statements that overwrite rows with entries of erased users; in the last step also the statement
    ///   that deletes the erasures.
    package mutating func take(_ rows: [FeedRow], _ removals: [FeedRemoval]) -> [SQLQuery] {
        let isLastStep = rows.count < Self.rows
        next = (isLastStep ? newestErasure : rows.last?.number ?? newestErasure) + 1
        let updates: [SQLQuery] = rows.compactMap { row in
            // A damaged row is skipped here. Readers report it.
            guard let scrubbed = try? row.scrubbed(by: removals), scrubbed.entries != row.entries else { return nil }
            return SQLQuery(
                "feed_scrub", "UPDATE feed SET entries = $2 WHERE number = $1", .integer(row.number),
                .bytes(scrubbed.entries))
        }
        return isComplete ? updates + [FeedRemoval.forgetErasures(to: newestErasure)] : updates
    }
}

extension FeedRemoval {
    /// Selects the number of the row with the newest erasure, the last row that may have to be overwritten. The result
    /// has no row if there is no erasure.
    package static let newestErasure = SQLQuery(
        "feed_newest_erasure",
        "SELECT max(number) FROM feed_removals WHERE account_hash IS NULL HAVING max(number) IS NOT NULL")

    /// Deletes all erasures after a pass, unless an erasure was added during the pass. The new erasure may also cover
    /// ids that were merged into its user earlier, so another pass must begin at the first row.
    ///
    /// - Parameter newest: the ``newestErasure`` of the pass.
    package static func forgetErasures(to newest: Int64) -> SQLQuery {
        SQLQuery(
            "feed_forget_erasures",
            """
            DELETE FROM feed_removals WHERE account_hash IS NULL
                AND (SELECT max(number) FROM feed_removals WHERE account_hash IS NULL) = $1
            """, .integer(newest))
    }
}
