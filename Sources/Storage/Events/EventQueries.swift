public import Bucketing
public import Chronology

extension StoreQuery<[StoredExposure]> {
    /// Reads exposures in the order of their numbers.
    public static func exposures(after number: Int64, limit: Int) -> Self {
        Self(.exposures(after: number, limit: limit)) { _ in
            .all(page(.exposures, after: number, limit)) { StoredExposure($0) }
        }
    }

    /// Reads the exposures of all users, the last stored or changed first.
    public static func latestExposures(limit: Int) -> Self {
        Self(.latestExposures(limit: limit)) { _ in
            let table = StoredTable.exposures
            let sql = "SELECT \(table.columnList) FROM \(table.rawValue) ORDER BY number DESC LIMIT $1"
            return .all(SQLQuery("latest_exposures", sql, .integer(limit))) { StoredExposure($0) }
        }
    }

    /// Reads exposures of a user, the last stored or changed first.
    ///
    /// - Parameter number: only those with smaller numbers.
    public static func exposures(of userID: Identifier, before number: Int64, limit: Int) -> Self {
        Self(.exposuresOfUser(userID, before: number, limit: limit)) { context in
            .all(page(.exposures, of: userID, before: number, limit, context)) { StoredExposure($0) }
        }
    }
}

extension StoreQuery<[StoredGoalEvent]> {
    /// Reads goal events in the order of their numbers.
    public static func goalEvents(after number: Int64, limit: Int) -> Self {
        Self(.goalEvents(after: number, limit: limit)) { _ in
            .all(page(.goalEvents, after: number, limit)) { StoredGoalEvent($0) }
        }
    }

    /// Reads goal events of a user, the last stored first.
    ///
    /// - Parameter number: only those with smaller numbers.
    public static func goalEvents(of userID: Identifier, before number: Int64, limit: Int) -> Self {
        Self(.goalEventsOfUser(userID, before: number, limit: limit)) { context in
            .all(page(.goalEvents, of: userID, before: number, limit, context)) { StoredGoalEvent($0) }
        }
    }
}

extension StoreQuery {
    fileprivate static func page(_ table: StoredTable, after number: Int64, _ limit: Int) -> SQLQuery {
        SQLQuery(
            "\(table)_page",
            "SELECT \(table.columnList) FROM \(table.rawValue) WHERE number > $1 ORDER BY number LIMIT $2",
            .integer(number), .integer(limit))
    }

    fileprivate static func page(
        _ table: StoredTable, of userID: Identifier, before number: Int64, _ limit: Int, _ context: ReadingContext
    ) -> SQLQuery {
        // The `+` makes SQLite use the index of users and sort the result. Scanning by number would pass millions of
        // other users' rows.
        let column = context.dialect == .sqlite ? "+number" : "number"
        return SQLQuery(
            "\(table)_page_of_user",
            """
            SELECT \(table.columnList) FROM \(table.rawValue) WHERE user_id = $1 AND \(column) < $2
            ORDER BY \(column) DESC LIMIT $3
            """, .text(userID), .integer(number), .integer(limit))
    }
}

extension StoreQuery<ExperimentTally> {
    /// Reads the users of an experiment, by variation, allocation period and day of enrollment.
    public static func users(experimentID: Identifier) -> Self {
        // No goal has an empty name.
        tally(experimentID: experimentID, goal: "")
    }

    /// Reads the tallies of an experiment for a goal: by variation, allocation period and day of enrollment.
    public static func tally(experimentID: Identifier, goal: Identifier) -> Self {
        Self(.tally(experimentID: experimentID, goal: goal)) { context in
            let (users, goals) =
                switch context.dialect {
                case .sqlite:
                    (
                        TallySnapshot.usersInSQLite,
                        """
                        SELECT variation_id, day, \(GoalTally.columns(.sqlite))
                        FROM variation_goals WHERE experiment_id = $1 AND goal = $2
                        """
                    )
                // PostgreSQL stores increments, which must be added up.
                case .postgreSQL:
                    (
                        """
                        SELECT variation_id, period, day, counts[1], counts[2], counts[3], counts[4] FROM tallies
                        WHERE experiment_id = $1 AND goal IS NULL ORDER BY number
                        """,
                        """
                        SELECT variation_id, day, \(GoalTally.columns(.postgreSQL))
                        FROM tallies WHERE experiment_id = $1 AND goal = $2 ORDER BY number
                        """
                    )
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

/// The number of users of an experiment whom results count.
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
    /// Reads how many users results count, by experiment; experiments without users are left out.
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

extension StoreQuery<[TrackedSeries]> {
    /// Reads the series of an experiment, without those that were dropped.
    public static func series(experimentID: Identifier) -> Self {
        Self(.series(experimentID: experimentID)) { _ in
            .all(TrackedSeries.ofExperiment(experimentID)) { TrackedSeries($0) }
        }
    }
}

extension StoreQuery<Bool> {
    /// Reads whether any series is being filled or deleted.
    public static var openSeries: Self {
        Self(.openSeries) { _ in
            let sql = "SELECT 1 FROM tracked_series WHERE state <> \(TrackedSeries.State.filled.rawValue) LIMIT 1"
            var isFound = false
            return Reading([(SQLQuery("open_series", sql), { _ in isFound = true })]) { .value(isFound) }
        }
    }
}

extension TrackedSeries {
    package static func ofExperiment(_ experimentID: Identifier) -> SQLQuery {
        SQLQuery(
            "series_of_experiment",
            """
            SELECT \(StoredTable.trackedSeries.columnList) FROM tracked_series
            WHERE experiment_id = $1 AND state <> \(State.dropped.rawValue) ORDER BY number
            """, .text(experimentID))
    }
}

extension AllocationPeriod {
    package static let rows = KeyedRows(.allocationPeriods, by: ["experiment_id ="])

    package static func ofExperiment(_ experimentID: Identifier) -> SQLQuery { rows.query([.text(experimentID)]) }
}

extension StatusPeriod {
    package static let rows = KeyedRows(.statusPeriods, by: ["experiment_id ="])

    package static func ofExperiment(_ experimentID: Identifier) -> SQLQuery { rows.query([.text(experimentID)]) }
}

extension StoreQuery<[Identifier]> {
    /// Reads the goals that users of an experiment reached before or since their exposure.
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

extension TallySnapshot {
    package typealias Step = (query: SQLQuery, take: @Sendable (any Row, inout TallySnapshot) -> Void)

    /// The statements that read the tallies, in one transaction. If the statements of a transaction have different
    /// snapshots, one statement reads both users and goals.
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

extension StoreQuery<FrozenResults?> {
    /// Reads the totals that were frozen when an experiment was concluded; `nil` if none were at that time.
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
