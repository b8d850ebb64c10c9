public import Bucketing
public import Chronology

extension StoreQuery<ExperimentTally> {
    /// Reads the number of users of an experiment, by variation, allocation period and day of enrollment.
    public static func users(experimentID: Identifier) -> Self {
        // No goal has an empty name.
        tally(experimentID: experimentID, goal: "")
    }

    /// Reads the tallies of an experiment for a goal: by variation, allocation period and day of enrollment.
    public static func tally(experimentID: Identifier, goal: Identifier) -> Self {
        Self(.tally(experimentID: experimentID, goal: goal)) { context in
            let users: String
            let goals: String
            switch context.dialect {
            case .sqlite:
                users = TallySnapshot.usersInSQLite
                goals = """
                    SELECT variation_id, day, \(GoalTally.columns(.sqlite))
                    FROM variation_goals WHERE experiment_id = $1 AND goal = $2
                    """
            // PostgreSQL stores increments, several rows for each cohort or day, which must be added up.
            case .postgreSQL:
                users = """
                    SELECT variation_id, period, day, counts[1], counts[2], counts[3], counts[4] FROM tallies
                    WHERE experiment_id = $1 AND goal IS NULL ORDER BY number
                    """
                goals = """
                    SELECT variation_id, day, \(GoalTally.columns(.postgreSQL))
                    FROM tallies WHERE experiment_id = $1 AND goal = $2 ORDER BY number
                    """
            }
            let experiment = SQLValue.text(experimentID)
            var counts: [Cohort: UserCounts] = [:]
            var tallies: [(variationID: Identifier, day: Int64, tally: GoalTally)] = []
            var periods: [AllocationPeriod] = []
            return Reading([
                (
                    SQLQuery("tally_users", users, experiment),
                    { counts[Cohort($0), default: UserCounts()] += UserCounts($0, at: 3) }
                ),
                (
                    SQLQuery("tally_goals", goals, experiment, .text(goal)),
                    { tallies.append(($0.identifier(0), $0.integer(1), GoalTally($0, at: 2))) }
                ),
                (
                    AllocationPeriod.ofExperiment(experimentID), { periods.append(AllocationPeriod.decode($0).period) }
                ),
            ]) {
                .value(ExperimentTally(periods: periods, users: counts.map { ($0, $1) }, goals: tallies))
            }
        }
    }
}

/// The number of users of an experiment whom results count, and the day of the first enrollment.
public struct EnrolledUsers: Sendable, Equatable {
    public var count: Int
    /// The UTC day of the first enrollment, counted from 1970-01-01.
    public var firstDay: Int64

    public init(count: Int, firstDay: Int64) {
        self.count = count
        self.firstDay = firstDay
    }
}

extension StoreQuery<[Identifier: EnrolledUsers]> {
    /// Reads the number of counted users of each experiment that has any.
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
    /// Reads the names of the goals that users of an experiment reached before or since their exposure.
    public static func goals(experimentID: Identifier, limit: Int) -> Self {
        Self(.goals(experimentID: experimentID, limit: limit)) { context in
            let table = context.dialect == .sqlite ? "variation_goals" : "tallies"
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
    /// Reads the totals that were frozen when an experiment was concluded; `nil` if it was not concluded at that time.
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

    /// The statements that read all tallies of an experiment within the transaction that freezes them. In PostgreSQL
    /// each statement of this transaction has a snapshot of its own, so one statement reads both users and goals.
    package static func reading(_ experimentID: Identifier, _ dialect: SQLDialect) -> [Step] {
        let experiment = SQLValue.text(experimentID)
        let periods: Step = (
            AllocationPeriod.ofExperiment(experimentID), { $1.add(AllocationPeriod.decode($0).period) }
        )
        switch dialect {
        case .sqlite:
            let goals = "SELECT \(StoredTable.variationGoals.columnList) FROM variation_goals WHERE experiment_id = $1"
            return [
                (SQLQuery("tallied_users", usersInSQLite, experiment), { $1.add(UserCounts($0, at: 3), Cohort($0)) }),
                (
                    SQLQuery("tallied_goals", goals, experiment),
                    { $1.add(GoalTally($0, at: 4), $0.identifier(2), day: $0.integer(3), goal: $0.identifier(1)) }
                ),
                periods,
            ]
        case .postgreSQL:
            let tallies = """
                SELECT variation_id, period, day, \(GoalTally.columns(.postgreSQL)), goal
                FROM tallies WHERE experiment_id = $1 ORDER BY number
                """
            return [
                (
                    SQLQuery("tallied", tallies, experiment),
                    { row, snapshot in
                        guard let goal = row.optionalIdentifier(18) else {
                            return snapshot.add(UserCounts(row, at: 3), Cohort(row))
                        }
                        snapshot.add(GoalTally(row, at: 3), row.identifier(0), day: row.integer(2), goal: goal)
                    }
                ),
                periods,
            ]
        }
    }

    fileprivate static let usersInSQLite = """
        SELECT variation_id, period, day, counted, crossed, forced, not_running
        FROM variation_users WHERE experiment_id = $1
        """
}

// MARK: Columns

extension GoalTally {
    private static let sqliteColumns = StoredTable.variationGoals.columnNames.dropFirst(4).joined(separator: ", ")
    private static let postgreSQLColumns =
        ((1...4).map { "counts[\($0)]" } + (1...10).map { "sums[\($0)]" } + ["coalesce(counts[5], 0)"])
        .joined(separator: ", ")

    /// The columns that ``init(_:at:)`` reads.
    static func columns(_ dialect: SQLDialect) -> String {
        switch dialect {
        case .sqlite: sqliteColumns
        case .postgreSQL: postgreSQLColumns
        }
    }
}

extension Cohort {
    /// - Parameter row: a variation, period and day.
    fileprivate init(_ row: any Row) {
        self.init(variationID: row.identifier(0), period: row.integer(1), day: row.integer(2))
    }
}
