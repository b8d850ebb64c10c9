public import Bucketing
public import Chronology

extension StoreQuery<BreakdownTally> {
    /// Reads the tallies of an experiment for one goal or series, by the groups of a breakdown.
    ///
    /// - Parameters:
    ///   - series: the number of the breakdown's series.
    ///   - goal: the goal, or the name of the other series.
    ///   - time: when the tallies were frozen; `nil` for the current tallies.
    public static func breakdown(
        experimentID: Identifier, series: Int64, goal: Identifier, frozenAt time: Instant?
    ) -> Self {
        Self(.breakdown(experimentID: experimentID, series: series, goal: goal, frozenAt: time)) { context in
            let ranges = [GroupNames(series).users, GroupNames(series).values(of: goal)]
            let tally = BreakdownTally(series, goal)
            guard let time else { return current(experimentID, ranges, tally, context.dialect) }
            return frozen(experimentID, ranges, tally, at: time)
        }
    }

    /// Reads the current tallies.
    ///
    /// - Parameter empty: a tally without rows, to which the rows are added.
    private static func current(
        _ experimentID: Identifier, _ ranges: [GroupNames.Range], _ empty: BreakdownTally, _ dialect: SQLDialect
    ) -> Reading<BreakdownTally> {
        var tally = empty
        // The columns: name, variation, day, and then the tally.
        let sql =
            switch dialect {
            case .sqlite:
                """
                SELECT goal, variation_id, day, \(GoalTally.columns(dialect)) FROM variation_goals
                WHERE experiment_id = $1 AND goal >= $2 AND goal < $3
                """
            // PostgreSQL stores increments, which must be added up.
            case .postgreSQL:
                """
                SELECT goal, variation_id, day, \(GoalTally.columns(dialect)) FROM tallies
                WHERE experiment_id = $1 AND goal >= $2 AND goal < $3 ORDER BY number
                """
            }
        let take: (any Row) -> Void = { row in
            tally.add(GoalTally(row, at: 3), row.identifier(1), day: row.integer(2), name: row.identifier(0))
        }
        let steps = ranges.map { range -> Reading<BreakdownTally>.Step in
            (SQLQuery("groups", sql, .text(experimentID), .text(range.from), .text(range.to)), take)
        }
        return Reading(steps) { .value(tally) }
    }

    /// Reads the tallies that were frozen at a time.
    ///
    /// - Parameter empty: a tally without rows, to which the rows are added.
    private static func frozen(
        _ experimentID: Identifier, _ ranges: [GroupNames.Range], _ empty: BreakdownTally, at time: Instant
    ) -> Reading<BreakdownTally> {
        let sql = """
            SELECT \(StoredTable.frozenResults.columnList) FROM frozen_results
            WHERE experiment_id = $1 AND goal >= $2 AND goal < $3 AND frozen_at = $4
            """
        var rows: [FrozenRow] = []
        let take: (any Row) -> Void = { rows.append(FrozenRow($0)) }
        let steps = ranges.map { range -> Reading<BreakdownTally>.Step in
            let query = SQLQuery(
                "frozen_groups", sql, .text(experimentID), .text(range.from), .text(range.to), .instant(time))
            return (query, take)
        }
        return Reading(steps) { () throws(StorageError) in
            var tally = empty
            for row in rows {
                for (variationID, day, sums) in try row.tallies() {
                    tally.add(sums, variationID, day: day, name: row.goal)
                }
            }
            return .value(tally)
        }
    }
}
