public import Bucketing

extension StoreQuery<[StoredExposure]> {
    /// Reads exposures of all users, in the order of their numbers.
    ///
    /// - Parameter number: only exposures with greater numbers are read.
    public static func exposures(after number: Int64, limit: Int) -> Self {
        Self(.exposures(after: number, limit: limit)) { _ in
            .all(page(.exposures, after: number, limit)) { StoredExposure($0) }
        }
    }

    /// Reads the exposures of all users that were stored or changed last, newest first.
    public static func latestExposures(limit: Int) -> Self {
        Self(.latestExposures(limit: limit)) { _ in
            let table = StoredTable.exposures
            let sql = "SELECT \(table.columnList) FROM \(table.rawValue) ORDER BY number DESC LIMIT $1"
            return .all(SQLQuery("latest_exposures", sql, .integer(limit))) { StoredExposure($0) }
        }
    }

    /// Reads the exposures of a user. The exposure that was stored or changed last comes first.
    ///
    /// - Parameter number: only exposures with smaller numbers are read.
    public static func exposures(of userID: Identifier, before number: Int64, limit: Int) -> Self {
        Self(.exposuresOfUser(userID, before: number, limit: limit)) { context in
            .all(page(.exposures, of: userID, before: number, limit, context)) { StoredExposure($0) }
        }
    }
}

extension StoreQuery<[StoredGoalEvent]> {
    /// Reads goal events of all users, in the order of their numbers.
    ///
    /// - Parameter number: only events with greater numbers are read.
    public static func goalEvents(after number: Int64, limit: Int) -> Self {
        Self(.goalEvents(after: number, limit: limit)) { _ in
            .all(page(.goalEvents, after: number, limit)) { StoredGoalEvent($0) }
        }
    }

    /// Reads the goal events of a user. The event that was stored last comes first.
    ///
    /// - Parameter number: only events with smaller numbers are read.
    public static func goalEvents(of userID: Identifier, before number: Int64, limit: Int) -> Self {
        Self(.goalEventsOfUser(userID, before: number, limit: limit)) { context in
            .all(page(.goalEvents, of: userID, before: number, limit, context)) { StoredGoalEvent($0) }
        }
    }
}

extension StoreQuery {
    /// Selects rows in the order of their numbers.
    fileprivate static func page(_ table: StoredTable, after number: Int64, _ limit: Int) -> SQLQuery {
        SQLQuery(
            "\(table)_page",
            "SELECT \(table.columnList) FROM \(table.rawValue) WHERE number > $1 ORDER BY number LIMIT $2",
            .integer(number), .integer(limit))
    }

    /// Selects rows of a user, in descending order of their numbers.
    fileprivate static func page(
        _ table: StoredTable, of userID: Identifier, before number: Int64, _ limit: Int, _ context: ReadingContext
    ) -> SQLQuery {
        // The unary `+` keeps SQLite from scanning the index of numbers, which has the rows of all users. SQLite then
        // uses the index of users and sorts the result.
        let column = context.dialect == .sqlite ? "+number" : "number"
        return SQLQuery(
            "\(table)_page_of_user",
            """
            SELECT \(table.columnList) FROM \(table.rawValue) WHERE user_id = $1 AND \(column) < $2
            ORDER BY \(column) DESC LIMIT $3
            """, .text(userID), .integer(number), .integer(limit))
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
    /// Reads whether any series is being filled or deleted, so that ``SeriesFiller`` has work.
    public static var openSeries: Self {
        Self(.openSeries) { _ in
            let sql = "SELECT 1 FROM tracked_series WHERE state <> \(TrackedSeries.State.filled.rawValue) LIMIT 1"
            var isFound = false
            return Reading([(SQLQuery("open_series", sql), { _ in isFound = true })]) { .value(isFound) }
        }
    }
}

extension TrackedSeries {
    /// Selects the series of an experiment, without those that were dropped.
    package static func ofExperiment(_ experimentID: Identifier) -> SQLQuery {
        SQLQuery(
            "series_of_experiment",
            """
            SELECT \(StoredTable.trackedSeries.columnList) FROM tracked_series
            WHERE experiment_id = $1 AND state <> \(State.dropped.rawValue) ORDER BY number
            """, .text(experimentID))
    }
}

// MARK: Periods of an experiment

extension AllocationPeriod {
    package static let rows = KeyedRows(.allocationPeriods, by: ["experiment_id ="])

    /// Selects the periods of an experiment, in any order.
    package static func ofExperiment(_ experimentID: Identifier) -> SQLQuery { rows.query([.text(experimentID)]) }
}

extension StatusPeriod {
    package static let rows = KeyedRows(.statusPeriods, by: ["experiment_id ="])

    /// Selects the periods of an experiment, in any order.
    package static func ofExperiment(_ experimentID: Identifier) -> SQLQuery { rows.query([.text(experimentID)]) }
}
