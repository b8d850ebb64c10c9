package import Bucketing

// The statements by which databases read and delete the records of a user. ``UserRecords/rows(of:_:_:)`` maps each part
// of ``UserRecords`` to the rows that must be read (``UserRecords/PartRows``). ``KeyedRows`` has the SQL of these rows.
// The stores decide how many users one statement concerns and which locks protect them. They also write the rows.

/// Rows of a table that statements find by a user or an experiment, and perhaps by further columns.
///
/// Example: the exposures of a user have the keys `user_id =` and `experiment_id =`. Comparing the first key with a
/// value finds the user's exposures to all experiments, and comparing both finds the exposure to one.
package final class KeyedRows: Sendable {
    /// The operation of a statement on the rows.
    package enum Action: Sendable {
        case select
        case delete
        /// Sets columns to NULL.
        case clear([String])
    }

    package let table: String
    /// The columns by which rows are found, each with its operator, for example `happened_at >=`.
    package let keys: [String]
    private let columns: String
    /// The end of a statement that selects, for example ` ORDER BY number`.
    private let end: String
    /// The names of the statements that select by the first key, by the first two keys…
    private let names: [String]

    /// - Parameters:
    ///   - name: the beginning of the statements' names.
    ///   - columns: the selected columns.
    ///   - keys: the columns by which rows are found, each with its operator.
    ///   - end: the end of a statement that selects.
    package init(_ name: String, _ columns: String, of table: String, by keys: [String], _ end: String = "") {
        self.table = table
        self.keys = keys
        self.columns = columns
        self.end = end
        names = keys.indices.map { "\(name)_by_\($0 + 1)" }
    }

    /// Creates rows that are selected with all columns of a table.
    package convenience init(_ table: StoredTable, by keys: [String], _ end: String = "") {
        self.init("\(table)", table.columnList, of: table.rawValue, by: keys, end)
    }

    /// Returns the name of a statement that finds the rows by the first keys.
    ///
    /// - Parameter count: the number of keys, at least 1.
    package func name(_ action: Action, keys count: Int) -> String {
        switch action {
        case .select: names[count - 1]
        case .delete: "delete_\(names[count - 1])"
        case .clear: "clear_\(names[count - 1])"
        }
    }

    /// Returns the SQL of a statement.
    ///
    /// - Parameter source: the table with its joins; `nil` for the table alone.
    package func sql(_ action: Action, from source: String? = nil, where condition: String) -> String {
        let rows = "\(source ?? table) WHERE \(condition)"
        return switch action {
        case .select: "SELECT \(columns) FROM \(rows)\(end)"
        case .delete: "DELETE FROM \(rows)"
        case .clear(let cleared):
            "UPDATE \(table) SET \(cleared.map { "\($0) = NULL" }.joined(separator: ", ")) WHERE \(condition)"
        }
    }

    /// Returns the condition that compares the first keys with values, which may be placeholders such as `$1`.
    package func condition(_ values: [String]) -> String {
        zip(keys, values).map { "\($0) \($1)" }.joined(separator: " AND ")
    }

    /// Returns the statement about the rows whose first keys have these values.
    package func query(_ values: [SQLValue], _ action: Action = .select) -> SQLQuery {
        SQLQuery(
            name(action, keys: values.count),
            self.sql(action, where: self.condition(values.indices.map { "$\($0 + 1)" })), values)
    }
}

extension UserRecords {
    /// Rows that are read as a part of users' records.
    package final class PartRows: Sendable {
        /// The column in which a row names its user.
        package enum Owner: Sendable {
            case id(column: Int32)
            /// See ``ErasureRules/hash(_:)``.
            case hash(column: Int32)
        }

        /// The rows. Their first key is the user.
        package let rows: KeyedRows
        package let owner: Owner
        /// Adds a row to the records.
        package let take: @Sendable (any Row, inout UserRecords) -> Void

        fileprivate init(
            _ rows: KeyedRows, _ owner: Owner = .id(column: 0),
            take: @escaping @Sendable (any Row, inout UserRecords) -> Void
        ) {
            self.rows = rows
            self.owner = owner
            self.take = take
        }
    }

    /// Returns the rows of a part of a user's records, with the values of the keys by which the rows are found. Parts
    /// that all users share have no such rows.
    package static func rows(
        of part: Part, _ userID: Identifier, _ dialect: SQLDialect
    ) -> [(part: PartRows, keys: [SQLValue])] {
        let user = SQLValue.text(userID)
        return switch part {
        case .profile: [(PartRows.profiles[dialect], [user])]
        case .attributes: [(PartRows.attributes[dialect], [user])]
        case .forcedVariations: [(.forcedVariations, [user])]
        case .exposures: [(.exposures, [user])]
        case .exposure(let experimentID): [(.exposures, [user, .text(experimentID)])]
        case .totals(let experimentID): [(.totals, [user, .text(experimentID)])]
        case .someTotals(let keys): keys.map { (.totals, [user, .text($0.experimentID), .text($0.goal)]) }
        case .goalEvents(let since): [(PartRows.goalEvents[dialect], [user, .instant(since)])]
        case .goalEvent(let senderID): [(.goalEventsOfSenders, [user, .text(senderID)])]
        case .otherRecords:
            [(.goalEventCounts, [user]), (.auditCounts, [user]), (PartRows.mergeCounts[dialect], [user])]
        case .stickyDocuments: [(.stickyDocuments, [user])]
        case .removals: [(.removals, [.integer(ErasureRules.hash(userID))])]
        case .definedAttributes, .periods, .statuses, .newestDatafile, .series: []
        }
    }

    /// The rows that ``Write/eraseOtherRecords`` deletes or clears. Forced variations and attributes are missing here,
    /// because their erasure has consequences that differ between stores.
    package static let erasure: [(rows: KeyedRows, action: KeyedRows.Action)] = [
        (PartRows.exposures.rows, .delete), (PartRows.totals.rows, .delete),
        (PartRows.goalEventsOfSenders.rows, .delete),
        // See ``AuditEntry/anonymize()``.
        (PartRows.auditCounts.rows, .clear(["user_id", "before", "after"])),
    ]
}

extension UserRecords.PartRows {
    package static let exposures = UserRecords.PartRows(KeyedRows(.exposures, by: ["user_id =", "experiment_id ="])) {
        $1.exposures.append(StoredExposure($0))
    }
    package static let totals = UserRecords.PartRows(
        KeyedRows(.userGoals, by: ["user_id =", "experiment_id =", "goal ="])
    ) {
        let (key, total) = UserGoal.decode($0)
        $1.totals[key] = total
    }
    package static let forcedVariations = UserRecords.PartRows(
        KeyedRows(.forcedVariations, by: ["user_id =", "sdk_key =", "experiment_key ="]), .id(column: 1)
    ) { $1.forcedVariations.append(ForcedVariation($0)) }
    package static let stickyDocuments = UserRecords.PartRows(
        KeyedRows(.stickyDocuments, by: ["attribute_value ="], " ORDER BY attribute_name")
    ) { $1.stickyDocuments.append(.init($0)) }
    package static let goalEventsOfSenders = UserRecords.PartRows(
        KeyedRows("goal_events_of_senders", "user_id, sender_id", of: "goal_events", by: ["user_id =", "sender_id ="])
    ) { $1.senderIDs.insert($0.identifier(1)) }
    fileprivate static let goalEventCounts = UserRecords.PartRows(counts(of: "goal_events", "number")) {
        $1.otherRecords.goalEvents = .init($0)
    }
    fileprivate static let auditCounts = UserRecords.PartRows(counts(of: "audit", "id")) {
        $1.otherRecords.auditEntries = .init($0)
    }
    fileprivate static let removals = UserRecords.PartRows(
        KeyedRows("removals", RemovedUser.columns, of: "removed_users", by: ["user_hash ="]), .hash(column: 0)
    ) { $1.removals.append(RemovedUser($0)) }

    /// Rows with the number of a user's records in a table, and the greatest of their numbers.
    private static func counts(of table: String, _ number: String) -> KeyedRows {
        KeyedRows(
            "\(table)_counts", "user_id, count(*), max(\(number))", of: table, by: ["user_id ="], " GROUP BY user_id")
    }

    // MARK: Rows that differ between SQLite and PostgreSQL

    /// The rows of a part in each kind of database.
    fileprivate struct OfDialects: Sendable {
        private let sqlite: UserRecords.PartRows
        private let postgreSQL: UserRecords.PartRows

        init(_ rows: (SQLDialect) -> UserRecords.PartRows) {
            sqlite = rows(.sqlite)
            postgreSQL = rows(.postgreSQL)
        }

        subscript(dialect: SQLDialect) -> UserRecords.PartRows { dialect == .sqlite ? sqlite : postgreSQL }
    }

    fileprivate static let profiles = OfDialects { dialect in
        UserRecords.PartRows(record("profile", dialect, sqlite: "profiles")) {
            $1.profile = .init($0.optionalBytes(1), of: $1.userID)
        }
    }
    fileprivate static let attributes = OfDialects { dialect in
        UserRecords.PartRows(record("attributes", dialect, sqlite: "user_attributes")) {
            $1.attributes = .init($0.optionalBytes(1), of: $1.userID)
        }
    }

    /// The row with an encoded record of a user. SQLite has a table for each kind of record, PostgreSQL a column of
    /// `users`.
    private static func record(_ name: String, _ dialect: SQLDialect, sqlite table: String) -> KeyedRows {
        let (column, table) = dialect == .sqlite ? ("record", table) : (name, "users")
        return KeyedRows("\(name)_of_user", "user_id, \(column)", of: table, by: ["user_id ="])
    }

    fileprivate static let goalEvents = OfDialects { dialect in
        UserRecords.PartRows(
            KeyedRows(
                "goal_events_since", "user_id, goal, value, happened_at, sender_id", of: "goal_events",
                by: ["user_id =", "happened_at >="],
                // SQLite would have to sort the events each time, and rules do not depend on their order.
                dialect == .sqlite ? "" : " ORDER BY number")
        ) { $1.goalEvents.append(.init($0)) }
    }
    /// Rows with the number of audit entries about merges of the user into others.
    fileprivate static let mergeCounts = OfDialects { dialect in
        let from = RemovedUser.mergedUser(dialect)
        return UserRecords.PartRows(
            KeyedRows(
                "merge_counts", "\(from), count(*)", of: "audit", by: [RemovedUser.merges(dialect, "=")],
                " GROUP BY \(from)")
        ) { $1.otherRecords.mergesIntoOthers = Int(clamping: $0.integer(1)) }
    }
}
