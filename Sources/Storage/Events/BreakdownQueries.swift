public import Bucketing
public import Chronology

extension StoreQuery<BreakdownTally> {
    /// Reads the tallies of an experiment for a goal or the name of a series, by the groups of a breakdown.
    ///
    /// - Parameters:
    ///   - series: the number of the breakdown's series.
    ///   - time: when the tallies were frozen; `nil` for the current ones.
    public static func breakdown(
        experimentID: Identifier, series: Int64, goal: Identifier, frozenAt time: Instant?
    ) -> Self {
        Self(.breakdown(experimentID: experimentID, series: series, goal: goal, frozenAt: time)) { context in
            var tally = BreakdownTally(series, goal)
            let experiment = SQLValue.text(experimentID)
            let ranges = [GroupNames(series).users, GroupNames(series).values(of: goal)]
            guard let time else {
                let (name, sql) = statement(context.dialect)
                let steps = ranges.map { range -> Reading<BreakdownTally>.Step in
                    (
                        SQLQuery(name, sql, experiment, .text(range.from), .text(range.to)),
                        {
                            tally.add(
                                GoalTally($0, at: 3), $0.identifier(1), day: $0.integer(2), name: $0.identifier(0))
                        }
                    )
                }
                return Reading(steps) { .value(tally) }
            }
            let sql = """
                SELECT \(StoredTable.frozenResults.columnList) FROM frozen_results
                WHERE experiment_id = $1 AND goal >= $2 AND goal < $3 AND frozen_at = $4
                """
            var rows: [FrozenRow] = []
            let steps = ranges.map { range -> Reading<BreakdownTally>.Step in
                (
                    SQLQuery(
                        "frozen_groups", sql, experiment, .text(range.from), .text(range.to), .instant(time)),
                    { rows.append(FrozenRow($0)) }
                )
            }
            return Reading(steps) { () throws(StorageError) in
                for row in rows {
                    for (variationID, day, sums) in try row.tallies() {
                        tally.add(sums, variationID, day: day, name: row.goal)
                    }
                }
                return .value(tally)
            }
        }
    }

    private static func statement(_ dialect: SQLDialect) -> (name: String, sql: String) {
        switch dialect {
        case .sqlite:
            (
                "groups",
                """
                SELECT goal, variation_id, day, \(GoalTally.columns(dialect)) FROM variation_goals
                WHERE experiment_id = $1 AND goal >= $2 AND goal < $3
                """
            )
        // PostgreSQL stores increments, which must be added up.
        case .postgreSQL:
            (
                "groups",
                """
                SELECT goal, variation_id, day, \(GoalTally.columns(dialect)) FROM tallies
                WHERE experiment_id = $1 AND goal >= $2 AND goal < $3 ORDER BY number
                """
            )
        }
    }
}
