import Bucketing
import Storage

/// The `variation_users` and `variation_goals` tables.
enum VariationRows {
    /// Adds what a transaction changes in the tallies.
    static func add(_ changes: TallyChanges, in transaction: WriteTransaction) throws(SQLiteError) {
        for (variation, change) in changes.users {
            try add(change, experimentID: variation.experimentID, in: transaction)
        }
        for (key, change) in changes.goals {
            let stored = try goal(
                key.goal, experimentID: key.variation.experimentID, variationID: key.variation.variationID,
                on: transaction.connection)
            try put(
                stored.map { $0 + change } ?? change, goal: key.goal, experimentID: key.variation.experimentID,
                variationID: key.variation.variationID, in: transaction)
        }
    }

    private static func add(
        _ change: VariationTally, experimentID: Identifier, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        try transaction.connection.statement(
            """
            INSERT INTO variation_users (experiment_id, variation_id, counted, crossed, forced)
            VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT (experiment_id, variation_id) DO UPDATE SET
            counted = counted + excluded.counted, crossed = crossed + excluded.crossed, forced = forced + excluded.forced
            """
        ).run {
            $0.bind(experimentID.string, at: 1)
            $0.bind(change.variationID.string, at: 2)
            $0.bind(Int64(change.counted), at: 3)
            $0.bind(Int64(change.crossed), at: 4)
            $0.bind(Int64(change.forced), at: 5)
        }
        transaction.changed()
    }

    private static func put(
        _ tally: GoalTally, goal: Identifier, experimentID: Identifier, variationID: Identifier,
        in transaction: WriteTransaction
    ) throws(SQLiteError) {
        try transaction.connection.statement(
            """
            INSERT OR REPLACE INTO variation_goals
            (experiment_id, goal, variation_id, events, converted, converted_before, converted_both,
            y, y_rest, yy, yy_rest, x, x_rest, xx, xx_rest, xy, xy_rest)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
            """
        ).run { statement in
            statement.bind(experimentID.string, at: 1)
            statement.bind(goal.string, at: 2)
            statement.bind(variationID.string, at: 3)
            let counts = [tally.events, tally.converted, tally.convertedBefore, tally.convertedBoth]
            for (index, count) in counts.enumerated() { statement.bind(Int64(count), at: Int32(4 + index)) }
            for (index, sum) in [tally.y, tally.yy, tally.x, tally.xx, tally.xy].enumerated() {
                statement.bind(sum.value, at: Int32(8 + 2 * index))
                statement.bind(sum.rest, at: Int32(9 + 2 * index))
            }
        }
        transaction.changed()
    }

    private static func goal(
        _ goal: Identifier, experimentID: Identifier, variationID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> GoalTally? {
        var found: GoalTally?
        try connection.statement(
            """
            SELECT events, converted, converted_before, converted_both,
            y, y_rest, yy, yy_rest, x, x_rest, xx, xx_rest, xy, xy_rest
            FROM variation_goals WHERE experiment_id = ?1 AND goal = ?2 AND variation_id = ?3
            """
        ).run {
            $0.bind(experimentID.string, at: 1)
            $0.bind(goal.string, at: 2)
            $0.bind(variationID.string, at: 3)
        } row: {
            found = decode($0)
        }
        return found
    }

    private static func decode(_ row: Statement) -> GoalTally {
        func sum(_ column: Int32) -> CompensatedSum {
            CompensatedSum(row.double(column), rest: row.double(column + 1))
        }
        var tally = GoalTally()
        tally.events = Int(row.bounded(0))
        tally.converted = Int(row.bounded(1))
        tally.convertedBefore = Int(row.bounded(2))
        tally.convertedBoth = Int(row.bounded(3))
        (tally.y, tally.yy, tally.x, tally.xx, tally.xy) = (sum(4), sum(6), sum(8), sum(10), sum(12))
        return tally
    }

    /// Returns the tallies of the variations to which users were exposed, for a goal.
    static func tallies(
        experimentID: Identifier, goal: Identifier, on connection: Connection
    ) throws(SQLiteError) -> [VariationTally] {
        var found: [VariationTally] = []
        try connection.statement(
            """
            SELECT variation_id, counted, crossed, forced FROM variation_users
            WHERE experiment_id = ?1 ORDER BY variation_id
            """
        ).run {
            $0.bind(experimentID.string, at: 1)
        } row: { row in
            var tally = VariationTally(variationID: Identifier(row.text(0)))
            (tally.counted, tally.crossed, tally.forced) = (
                Int(row.bounded(1)), Int(row.bounded(2)), Int(row.bounded(3))
            )
            found.append(tally)
        }
        for index in found.indices {
            found[index].goal =
                try Self.goal(goal, experimentID: experimentID, variationID: found[index].variationID, on: connection)
                ?? GoalTally()
        }
        return found
    }

    static func goals(
        experimentID: Identifier, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [Identifier] {
        var found: [Identifier] = []
        try connection.statement(
            "SELECT DISTINCT goal FROM variation_goals WHERE experiment_id = ?1 ORDER BY goal LIMIT ?2"
        ).run {
            $0.bind(experimentID.string, at: 1)
            $0.bind(Int64(limit), at: 2)
        } row: {
            found.append(Identifier($0.text(0)))
        }
        return found
    }
}
