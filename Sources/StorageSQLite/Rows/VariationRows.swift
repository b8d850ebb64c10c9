import Bucketing
import Storage

/// The `variation_users` and `variation_goals` tables: the tallies from which results of experiments are computed.
enum VariationRows {
    /// Adds the changes of a transaction to the tallies.
    static func add(_ changes: TallyChanges, in transaction: WriteTransaction) throws(SQLiteError) {
        for (key, change) in changes.users { try add(change, to: key, in: transaction) }
        for (key, change) in changes.goals {
            let stored = try find(key, on: transaction.connection)
            let sum = stored.map { $0 + change } ?? change
            // Replaces the stored row.
            try transaction.insert(sum.values(key), into: .variationGoals)
        }
    }

    /// Adds to the counts of users with one key.
    private static func add(
        _ change: UserCounts, to key: TallyChanges.Users, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        try transaction.connection.change(
            """
            INSERT INTO variation_users (experiment_id, variation_id, period, day, counted, crossed, forced,
            not_running)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
            ON CONFLICT (experiment_id, variation_id, period, day) DO UPDATE SET
            counted = counted + excluded.counted, crossed = crossed + excluded.crossed, forced = forced + excluded.forced,
            not_running = not_running + excluded.not_running
            """, .text(key.experimentID), .text(key.cohort.variationID), .integer(key.cohort.period),
            .integer(key.cohort.day), .integer(change.counted), .integer(change.multipleVariations),
            .integer(change.chosen), .integer(change.notRunning))
        transaction.changed()
    }

    /// Returns the stored tally of a goal; `nil` if there is none.
    private static func find(_ key: TallyChanges.Goal, on connection: Connection) throws(SQLiteError) -> GoalTally? {
        var found: GoalTally?
        let query = SQLQuery(
            "variation_goal",
            """
            SELECT \(StoredTable.variationGoals.columnList) FROM variation_goals
            WHERE experiment_id = $1 AND goal = $2 AND variation_id = $3 AND day = $4
            """, .text(key.experimentID), .text(key.goal), .text(key.variationID), .integer(key.day))
        try connection.run(query) { found = GoalTally($0, at: 4) }
        return found
    }
}
