public import Bucketing
public import Chronology

// The reads of tallies. SQLite stores sums, in the tables `variation_users` and `variation_goals`. PostgreSQL stores
// increments in the table `tallies`, so that transactions do not wait for each other: several rows for each key, which
// must be added up. ``UserCountsRow`` and ``GoalTallyRow`` hide the difference.

extension StoreQuery<ExperimentTally> {
    /// Reads the number of users of an experiment, by variation, allocation period and day of enrollment.
    public static func users(experimentID: Identifier) -> Self {
        // No goal has an empty name, so no totals are found.
        tally(experimentID: experimentID, goal: "")
    }

    /// Reads the tallies of an experiment for one goal: the number of users by variation, allocation period and day of
    /// enrollment, and the totals of the goal by variation and day.
    ///
    /// - Parameter goal: a goal or the name of a series.
    public static func tally(experimentID: Identifier, goal: Identifier) -> Self {
        Self(.tally(experimentID: experimentID, goal: goal)) { context in
            var counts: [Cohort: UserCounts] = [:]
            var tallies: [(variationID: Identifier, day: Int64, tally: GoalTally)] = []
            var periods: [AllocationPeriod] = []
            return Reading([
                (
                    UserCountsRow.query("tally_users", experimentID, context.dialect),
                    { row in
                        let users = UserCountsRow(row)
                        counts[users.cohort, default: UserCounts()] += users.counts
                    }
                ),
                (
                    GoalTallyRow.query("tally_goals", experimentID, goal, context.dialect),
                    { row in
                        let totals = GoalTallyRow(row)
                        tallies.append((totals.variationID, totals.day, totals.tally))
                    }
                ),
                (AllocationPeriod.ofExperiment(experimentID), { periods.append(AllocationPeriod.decode($0).period) }),
            ]) {
                .value(ExperimentTally(periods: periods, users: counts.map { ($0, $1) }, goals: tallies))
            }
        }
    }
}

/// A row with the number of users of one cohort.
private struct UserCountsRow {
    let cohort: Cohort
    let counts: UserCounts

    /// Selects the rows of an experiment, with the columns in the order of ``init(_:)``. In SQLite the columns of the
    /// counts are named as in earlier releases: `crossed` is ``UserCounts/multipleVariations``, and `forced` is
    /// ``UserCounts/chosen``.
    static func query(_ name: String, _ experimentID: Identifier, _ dialect: SQLDialect) -> SQLQuery {
        let sql =
            switch dialect {
            case .sqlite:
                """
                SELECT variation_id, period, day, counted, crossed, forced, not_running
                FROM variation_users WHERE experiment_id = $1
                """
            case .postgreSQL:
                """
                SELECT variation_id, period, day, counts[1], counts[2], counts[3], counts[4] FROM tallies
                WHERE experiment_id = $1 AND goal IS NULL ORDER BY number
                """
            }
        return SQLQuery(name, sql, .text(experimentID))
    }

    /// - Parameter row: a variation, period and day, and then the four counts.
    init(_ row: any Row) {
        cohort = Cohort(variationID: row.identifier(0), period: row.integer(1), day: row.integer(2))
        counts = UserCounts(row, at: 3)
    }
}

/// A row with the totals of one goal, for the users of a variation who were enrolled on one day.
private struct GoalTallyRow {
    let variationID: Identifier
    let day: Int64
    let tally: GoalTally

    /// Selects the rows of an experiment and a goal, with the columns in the order of ``init(_:)``.
    static func query(
        _ name: String, _ experimentID: Identifier, _ goal: Identifier, _ dialect: SQLDialect
    ) -> SQLQuery {
        let sql =
            switch dialect {
            case .sqlite:
                """
                SELECT variation_id, day, \(GoalTally.columns(.sqlite))
                FROM variation_goals WHERE experiment_id = $1 AND goal = $2
                """
            case .postgreSQL:
                """
                SELECT variation_id, day, \(GoalTally.columns(.postgreSQL))
                FROM tallies WHERE experiment_id = $1 AND goal = $2 ORDER BY number
                """
            }
        return SQLQuery(name, sql, .text(experimentID), .text(goal))
    }

    /// - Parameter row: a variation and day, and then ``GoalTally/columns(_:)``.
    init(_ row: any Row) {
        variationID = row.identifier(0)
        day = row.integer(1)
        tally = GoalTally(row, at: 2)
    }
}

extension GoalTally {
    private static let sqliteColumns = StoredTable.variationGoals.columnNames.dropFirst(4).joined(separator: ", ")
    /// Rows of earlier releases lack the fifth count, ``GoalTally/valued``.
    private static let postgreSQLColumns =
        ((1...4).map { "counts[\($0)]" } + (1...10).map { "sums[\($0)]" } + ["coalesce(counts[5], 0)"])
        .joined(separator: ", ")

    /// The number of ``columns(_:)``: four counts, five sums with their rests, and one more count.
    fileprivate static let columnCount: Int32 = 15

    /// The columns that ``init(_:at:)`` reads.
    static func columns(_ dialect: SQLDialect) -> String {
        switch dialect {
        case .sqlite: sqliteColumns
        case .postgreSQL: postgreSQLColumns
        }
    }
}

// MARK: Users and goals

/// The users of an experiment that results count.
public struct EnrolledUsers: Sendable, Equatable {
    public var count: Int
    /// The UTC day on which the first user was enrolled, counted from 1970-01-01.
    public var firstDay: Int64

    public init(count: Int, firstDay: Int64) {
        self.count = count
        self.firstDay = firstDay
    }
}

extension StoreQuery<[Identifier: EnrolledUsers]> {
    /// Reads the number of counted users of each experiment. Experiments without counted users are left out.
    public static var enrolledUsers: Self {
        Self(.enrolledUsers) { context in
            let sql =
                switch context.dialect {
                case .sqlite:
                    """
                    SELECT experiment_id, sum(counted), min(CASE WHEN counted > 0 THEN day END)
                    FROM variation_users GROUP BY experiment_id
                    """
                case .postgreSQL:
                    """
                    SELECT experiment_id, sum(counts[1])::bigint, min(CASE WHEN counts[1] > 0 THEN day END)
                    FROM tallies WHERE goal IS NULL GROUP BY experiment_id
                    """
                }
            var users: [Identifier: EnrolledUsers] = [:]
            let take: (any Row) -> Void = { row in
                guard row.integer(1) > 0 else { return }
                users[row.identifier(0)] = EnrolledUsers(count: Int(row.integer(1)), firstDay: row.integer(2))
            }
            return Reading([(SQLQuery("enrolled_users", sql), take)]) { .value(users) }
        }
    }
}

extension StoreQuery<[Identifier]> {
    /// Reads the names of the goals that users of an experiment reached before or since their exposure, in the order
    /// of the names.
    ///
    /// - Parameter limit: the maximum number of names. The names after them are left out.
    public static func goals(experimentID: Identifier, limit: Int) -> Self {
        Self(.goals(experimentID: experimentID, limit: limit)) { context in
            let table = context.dialect == .sqlite ? "variation_goals" : "tallies"
            // The totals of series are in the same table. Their names come before all names of goals.
            let sql = """
                SELECT DISTINCT goal FROM \(table) WHERE experiment_id = $1 AND goal >= $3 ORDER BY goal LIMIT $2
                """
            return .all(SQLQuery("goals", sql, .text(experimentID), .integer(limit), .text(SeriesName.end))) {
                $0.identifier(0)
            }
        }
    }
}

// MARK: Frozen results

extension StoreQuery<FrozenResults?> {
    /// Reads the totals that were frozen when an experiment was concluded; `nil` if the experiment was not concluded at
    /// `frozenAt`.
    ///
    /// - Parameters:
    ///   - goal: a goal or the name of a series.
    ///   - frozenAt: the time of the conclusion; see ``ResultsFreeze/frozenAt``.
    public static func frozenResults(experimentID: Identifier, goal: Identifier, frozenAt: Instant) -> Self {
        Self(.frozenResults(experimentID: experimentID, goal: goal, frozenAt: frozenAt)) { _ in
            let sql = """
                SELECT \(StoredTable.frozenResults.columnList) FROM frozen_results
                WHERE experiment_id = $1 AND frozen_at = $2 AND goal IN ($3, $4)
                """
            let query = SQLQuery(
                "frozen_results", sql, .text(experimentID), .instant(frozenAt), .text(FrozenRow.common), .text(goal))
            var rows: [FrozenRow] = []
            return Reading([(query, { rows.append(FrozenRow($0)) })]) { () throws(StorageError) in
                .value(try FrozenResults(rows))
            }
        }
    }
}

extension TallySnapshot {
    /// A statement, and a function that adds each of its rows to the snapshot.
    package typealias Step = (query: SQLQuery, take: @Sendable (any Row, inout TallySnapshot) -> Void)

    /// Returns the statements that read all tallies of an experiment, for the transaction that freezes them.
    package static func reading(_ experimentID: Identifier, _ dialect: SQLDialect) -> [Step] {
        let periods: Step = (
            AllocationPeriod.ofExperiment(experimentID), { $1.add(AllocationPeriod.decode($0).period) }
        )
        switch dialect {
        case .sqlite: return sqliteSteps(experimentID) + [periods]
        case .postgreSQL: return [postgreSQLStep(experimentID), periods]
        }
    }

    private static func sqliteSteps(_ experimentID: Identifier) -> [Step] {
        let sql = "SELECT \(StoredTable.variationGoals.columnList) FROM variation_goals WHERE experiment_id = $1"
        return [
            (
                UserCountsRow.query("tallied_users", experimentID, .sqlite),
                { row, snapshot in
                    let users = UserCountsRow(row)
                    snapshot.add(users.counts, users.cohort)
                }
            ),
            (
                SQLQuery("tallied_goals", sql, .text(experimentID)),
                { row, snapshot in
                    // The key of ``StoredTable/variationGoals``: experiment, goal, variation and day.
                    let goal = row.identifier(1)
                    snapshot.add(GoalTally(row, at: 4), row.identifier(2), day: row.integer(3), goal: goal)
                }
            ),
        ]
    }

    /// In PostgreSQL each statement of the transaction has a snapshot of its own. One statement therefore reads both
    /// the user counts, in rows without a goal, and the totals of goals.
    private static func postgreSQLStep(_ experimentID: Identifier) -> Step {
        let sql = """
            SELECT variation_id, period, day, \(GoalTally.columns(.postgreSQL)), goal
            FROM tallies WHERE experiment_id = $1 ORDER BY number
            """
        let tallyColumn: Int32 = 3
        let goalColumn = tallyColumn + GoalTally.columnCount
        return (
            SQLQuery("tallied", sql, .text(experimentID)),
            { row, snapshot in
                guard let goal = row.optionalIdentifier(goalColumn) else {
                    // The first four columns of a tally are the counts.
                    let users = UserCountsRow(row)
                    return snapshot.add(users.counts, users.cohort)
                }
                let tally = GoalTally(row, at: tallyColumn)
                snapshot.add(tally, row.identifier(0), day: row.integer(2), goal: goal)
            }
        )
    }
}
