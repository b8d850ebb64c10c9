public import Bucketing

extension StoreQuery<[StoredExposure]> {
    /// Reads exposures in the order of their numbers.
    public static func exposures(after number: Int64, limit: Int) -> Self {
        Self(.exposures(after: number, limit: limit)) { _ in
            .all(page(.exposures, after: number, limit)) { StoredExposure($0) }
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
        // SQLite is to sort what its index of users finds: between two rows of one user there may be millions.
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
    /// Reads the tallies of an experiment for a goal: by variation, allocation period and day of enrollment.
    public static func tally(experimentID: Identifier, goal: Identifier) -> Self {
        Self(.tally(experimentID: experimentID, goal: goal)) { context in
            let (users, goals) =
                switch context.dialect {
                case .sqlite:
                    (
                        """
                        SELECT variation_id, period, day, counted, crossed, forced FROM variation_users
                        WHERE experiment_id = $1
                        """,
                        """
                        SELECT variation_id, day, events, converted, converted_before, converted_both,
                            y, y_rest, yy, yy_rest, x, x_rest, xx, xx_rest, xy, xy_rest
                        FROM variation_goals WHERE experiment_id = $1 AND goal = $2
                        """
                    )
                // Its rows are summands.
                case .postgreSQL:
                    (
                        """
                        SELECT variation_id, period, day, counts[1], counts[2], counts[3] FROM tallies
                        WHERE experiment_id = $1 AND goal IS NULL ORDER BY number
                        """,
                        """
                        SELECT variation_id, day, counts[1], counts[2], counts[3], counts[4], sums[1], sums[2],
                            sums[3], sums[4], sums[5], sums[6], sums[7], sums[8], sums[9], sums[10]
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
                    { row in
                        let cohort = Cohort(
                            variationID: row.identifier(0), period: row.integer(1), day: row.integer(2))
                        counts[cohort, default: UserCounts()] += UserCounts(row, at: 3)
                    }
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

extension AllocationPeriod {
    package static func ofExperiment(_ experimentID: Identifier) -> SQLQuery {
        SQLQuery(
            "allocation_periods_of_experiment",
            "SELECT \(StoredTable.allocationPeriods.columnList) FROM allocation_periods WHERE experiment_id = $1",
            .text(experimentID))
    }
}

extension StoreQuery<[Identifier]> {
    /// Reads the goals that users of an experiment reached before or since their exposure.
    public static func goals(experimentID: Identifier, limit: Int) -> Self {
        Self(.goals(experimentID: experimentID, limit: limit)) { context in
            let table = context.dialect == .sqlite ? "variation_goals" : "tallies"
            let sql = """
                SELECT DISTINCT goal FROM \(table) WHERE experiment_id = $1 AND goal IS NOT NULL ORDER BY goal LIMIT $2
                """
            return .all(SQLQuery("goals", sql, .text(experimentID), .integer(limit))) { $0.identifier(0) }
        }
    }
}
