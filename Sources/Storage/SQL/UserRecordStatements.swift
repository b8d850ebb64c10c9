package import Bucketing

// How databases read what they store of a user, and delete it. How many users a statement concerns, which locks protect them,
// and how their own rows are written, is the store's.

/// Rows of a table that are found by keys: of one user or experiment, and perhaps by further columns.
package final class KeyedRows: Sendable {
    /// What a statement does with the rows.
    package enum Action: Sendable {
        case select
        case delete
        /// Sets columns to NULL.
        case clear([String])
    }

    package let table: String
    /// The columns that keys are compared with, each with its operator.
    package let keys: [String]
    private let columns: String
    private let end: String
    /// The names of the statements that select by the first key, by the first two…
    private let names: [String]

    /// - Parameters:
    ///   - columns: what is selected.
    ///   - end: of the statement that selects.
    package init(_ name: String, _ columns: String, of table: String, by keys: [String], _ end: String = "") {
        (self.table, self.keys, self.columns, self.end) = (table, keys, columns, end)
        names = keys.indices.map { "\(name)_by_\($0 + 1)" }
    }

    /// Whole rows.
    package convenience init(_ table: StoredTable, by keys: [String], _ end: String = "") {
        self.init("\(table)", table.columnList, of: table.rawValue, by: keys, end)
    }

    /// The name of a statement about rows that are found by the first keys.
    package func name(_ action: Action, keys count: Int) -> String {
        switch action {
        case .select: names[count - 1]
        case .delete: "delete_\(names[count - 1])"
        case .clear: "clear_\(names[count - 1])"
        }
    }

    /// - Parameter source: the table, and what it is joined with.
    package func sql(_ action: Action, from source: String? = nil, where condition: String) -> String {
        let rows = "\(source ?? table) WHERE \(condition)"
        return switch action {
        case .select: "SELECT \(columns) FROM \(rows)\(end)"
        case .delete: "DELETE FROM \(rows)"
        case .clear(let cleared):
            "UPDATE \(table) SET \(cleared.map { "\($0) = NULL" }.joined(separator: ", ")) WHERE \(condition)"
        }
    }

    /// The condition that compares the first keys with values.
    package func condition(_ values: [String]) -> String {
        zip(keys, values).map { "\($0) \($1)" }.joined(separator: " AND ")
    }

    /// A statement about the rows with one value of each of the first keys.
    package func query(_ values: [SQLValue], _ action: Action = .select) -> SQLQuery {
        SQLQuery(
            name(action, keys: values.count),
            self.sql(action, where: self.condition(values.indices.map { "$\($0 + 1)" })), values)
    }
}

extension UserRecords {
    /// Rows that are read as a part of users' records.
    package final class PartRows: Sendable {
        /// How a row names its user.
        package enum Owner: Sendable {
            case id(column: Int32)
            /// See ``ErasureRules/hash(_:)``.
            case hash(column: Int32)
        }

        /// The first key is the user.
        package let rows: KeyedRows
        package let owner: Owner
        package let take: @Sendable (any Row, inout UserRecords) -> Void

        fileprivate init(
            _ rows: KeyedRows, _ owner: Owner = .id(column: 0),
            take: @escaping @Sendable (any Row, inout UserRecords) -> Void
        ) {
            (self.rows, self.owner, self.take) = (rows, owner, take)
        }
    }

    /// Returns what rows a part of a user consists of, and the values of the keys by which they are found. None for what all
    /// users share.
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

    /// The statements of ``Write/eraseOtherRecords``, beside those about forced variations and attributes, which have
    /// consequences of the store's own.
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

    private static func counts(of table: String, _ number: String) -> KeyedRows {
        KeyedRows(
            "\(table)_counts", "user_id, count(*), max(\(number))", of: table, by: ["user_id ="], " GROUP BY user_id")
    }

    // MARK: What differs between the databases

    fileprivate struct OfDialects: Sendable {
        private let sqlite: UserRecords.PartRows
        private let postgreSQL: UserRecords.PartRows

        init(_ rows: (SQLDialect) -> UserRecords.PartRows) {
            (sqlite, postgreSQL) = (rows(.sqlite), rows(.postgreSQL))
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

    private static func record(_ name: String, _ dialect: SQLDialect, sqlite table: String) -> KeyedRows {
        let (column, table) = dialect == .sqlite ? ("record", table) : (name, "users")
        return KeyedRows("\(name)_of_user", "user_id, \(column)", of: table, by: ["user_id ="])
    }

    fileprivate static let goalEvents = OfDialects { dialect in
        UserRecords.PartRows(
            KeyedRows(
                "goal_events_since", "user_id, goal, value, happened_at, sender_id", of: "goal_events",
                by: ["user_id =", "happened_at >="],
                // SQLite would sort them each time.
                dialect == .sqlite ? "" : " ORDER BY number")
        ) { $1.goalEvents.append(.init($0)) }
    }
    fileprivate static let mergeCounts = OfDialects { dialect in
        let from = RemovedUser.mergedUser(dialect)
        return UserRecords.PartRows(
            KeyedRows(
                "merge_counts", "\(from), count(*)", of: "audit", by: [RemovedUser.merges(dialect, "=")],
                " GROUP BY \(from)")
        ) { $1.otherRecords.mergesIntoOthers = Int(clamping: $0.integer(1)) }
    }
}
