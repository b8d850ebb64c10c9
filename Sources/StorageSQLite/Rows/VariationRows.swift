import Bucketing
import Storage

/// The `variation_users` and `variation_goals` tables.
enum VariationRows {
    /// Applies the changes of a transaction to the tallies.
    static func add(_ changes: TallyChanges, in transaction: WriteTransaction) throws(SQLiteError) {
        for (key, change) in changes.users { try add(change, to: key, in: transaction) }
        for (key, change) in changes.goals {
            let stored = try find(key, on: transaction.connection)
            try put(stored.map { $0 + change } ?? change, key, in: transaction)
        }
    }

    private static func add(
        _ change: UserCounts, to key: TallyChanges.Users, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        try transaction.connection.statement(
            """
            INSERT INTO variation_users (experiment_id, variation_id, period, day, counted, crossed, forced)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            ON CONFLICT (experiment_id, variation_id, period, day) DO UPDATE SET
            counted = counted + excluded.counted, crossed = crossed + excluded.crossed, forced = forced + excluded.forced
            """
        ).run {
            $0.bind(key.experimentID.string, at: 1)
            $0.bind(key.cohort.variationID.string, at: 2)
            $0.bind(key.cohort.period, at: 3)
            $0.bind(key.cohort.day, at: 4)
            $0.bind(Int64(change.counted), at: 5)
            $0.bind(Int64(change.crossed), at: 6)
            $0.bind(Int64(change.forced), at: 7)
        }
        transaction.changed()
    }

    private static func put(
        _ tally: GoalTally, _ key: TallyChanges.Goal, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        try transaction.connection.statement(
            """
            INSERT OR REPLACE INTO variation_goals
            (experiment_id, goal, variation_id, day, events, converted, converted_before, converted_both,
            y, y_rest, yy, yy_rest, x, x_rest, xx, xx_rest, xy, xy_rest)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
            """
        ).run { statement in
            statement.bind(key.experimentID.string, at: 1)
            statement.bind(key.goal.string, at: 2)
            statement.bind(key.variationID.string, at: 3)
            statement.bind(key.day, at: 4)
            let counts = [tally.events, tally.converted, tally.convertedBefore, tally.convertedBoth]
            for (index, count) in counts.enumerated() { statement.bind(Int64(count), at: Int32(5 + index)) }
            for (index, sum) in [tally.y, tally.yy, tally.x, tally.xx, tally.xy].enumerated() {
                statement.bind(sum.value, at: Int32(9 + 2 * index))
                statement.bind(sum.rest, at: Int32(10 + 2 * index))
            }
        }
        transaction.changed()
    }

    private static func find(_ key: TallyChanges.Goal, on connection: Connection) throws(SQLiteError) -> GoalTally? {
        try connection.statement(
            """
            SELECT events, converted, converted_before, converted_both,
            y, y_rest, yy, yy_rest, x, x_rest, xx, xx_rest, xy, xy_rest
            FROM variation_goals WHERE experiment_id = ?1 AND goal = ?2 AND variation_id = ?3 AND day = ?4
            """
        ).first {
            $0.bind(key.experimentID.string, at: 1)
            $0.bind(key.goal.string, at: 2)
            $0.bind(key.variationID.string, at: 3)
            $0.bind(key.day, at: 4)
        } row: {
            decode($0)
        }
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

    /// Returns the tallies of an experiment for a goal. Call it in a transaction, so that all tables agree.
    static func tally(
        experimentID: Identifier, goal: Identifier, on connection: Connection
    ) throws(SQLiteError) -> ExperimentTally {
        let users = try connection.statement(
            """
            SELECT variation_id, period, day, counted, crossed, forced FROM variation_users WHERE experiment_id = ?1
            """
        ).all {
            $0.bind(experimentID.string, at: 1)
        } row: { row in
            let cohort = Cohort(variationID: Identifier(row.text(0)), period: row.integer(1), day: row.integer(2))
            let counts = UserCounts(
                counted: Int(row.bounded(3)), crossed: Int(row.bounded(4)), forced: Int(row.bounded(5)))
            return (cohort: cohort, counts: counts)
        }
        let goals = try connection.statement(
            """
            SELECT events, converted, converted_before, converted_both,
            y, y_rest, yy, yy_rest, x, x_rest, xx, xx_rest, xy, xy_rest, variation_id, day
            FROM variation_goals WHERE experiment_id = ?1 AND goal = ?2
            """
        ).all {
            $0.bind(experimentID.string, at: 1)
            $0.bind(goal.string, at: 2)
        } row: { row in
            (variationID: Identifier(row.text(14)), day: row.integer(15), tally: decode(row))
        }
        let periods = try AllocationPeriodRows.ofExperiment(experimentID, on: connection)
        return ExperimentTally(periods: periods, users: users, goals: goals)
    }

    static func goals(
        experimentID: Identifier, limit: Int, on connection: Connection
    ) throws(SQLiteError) -> [Identifier] {
        try connection.statement(
            "SELECT DISTINCT goal FROM variation_goals WHERE experiment_id = ?1 ORDER BY goal LIMIT ?2"
        ).all {
            $0.bind(experimentID.string, at: 1)
            $0.bind(Int64(limit), at: 2)
        } row: {
            Identifier($0.text(0))
        }
    }
}

/// The `allocation_periods` table.
enum AllocationPeriodRows {
    static func ofExperiment(
        _ experimentID: Identifier, on connection: Connection
    ) throws(SQLiteError) -> [AllocationPeriod] {
        try connection.statement(
            "SELECT number, sdk_key, since, allocation FROM allocation_periods WHERE experiment_id = ?1"
        ).all {
            $0.bind(experimentID.string, at: 1)
        } row: { row in
            AllocationPeriod(
                number: row.integer(0), sdkKey: row.text(1), since: row.bounded(2), stored: row.text(3))
        }
    }

    /// The last period of each experiment in a project.
    static func latest(
        sdkKey: String, on connection: Connection
    ) throws(SQLiteError) -> [Identifier: AllocationPeriod] {
        let periods = try connection.statement(
            """
            SELECT experiment_id, number, sdk_key, since, allocation FROM allocation_periods
            WHERE sdk_key = ?1 ORDER BY since, number
            """
        ).all {
            $0.bind(sdkKey, at: 1)
        } row: { row in
            (
                Identifier(row.text(0)),
                (number: row.integer(1), sdkKey: row.text(2), since: row.bounded(3), allocation: row.text(4))
            )
        }
        return Dictionary(periods, uniquingKeysWith: { _, last in last }).mapValues {
            AllocationPeriod(number: $0.number, sdkKey: $0.sdkKey, since: $0.since, stored: $0.allocation)
        }
    }

    static func insert(
        _ period: AllocationPeriod, _ experimentID: Identifier, in transaction: WriteTransaction
    ) throws(SQLiteError) {
        try transaction.connection.statement(
            """
            INSERT OR IGNORE INTO allocation_periods (experiment_id, number, sdk_key, since, allocation)
            VALUES (?1, ?2, ?3, ?4, ?5)
            """
        ).run {
            $0.bind(experimentID.string, at: 1)
            $0.bind(period.number, at: 2)
            $0.bind(period.sdkKey, at: 3)
            $0.bind(period.since, at: 4)
            $0.bind(period.storedAllocation, at: 5)
        }
        transaction.changed()
    }
}
