public import Bucketing

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
    /// - Parameter number: only exposures with smaller numbers are read.
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

    /// Selects rows of a user, those with the greatest numbers first.
    fileprivate static func page(
        _ table: StoredTable, of userID: Identifier, before number: Int64, _ limit: Int, _ context: ReadingContext
    ) -> SQLQuery {
        // The `+` keeps SQLite from using the index of numbers, by which it would pass millions of other users' rows.
        // It uses the index of users instead and sorts the result.
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

extension AllocationPeriod {
    package static let rows = KeyedRows(.allocationPeriods, by: ["experiment_id ="])

    package static func ofExperiment(_ experimentID: Identifier) -> SQLQuery { rows.query([.text(experimentID)]) }
}

extension StatusPeriod {
    package static let rows = KeyedRows(.statusPeriods, by: ["experiment_id ="])

    package static func ofExperiment(_ experimentID: Identifier) -> SQLQuery { rows.query([.text(experimentID)]) }
}
