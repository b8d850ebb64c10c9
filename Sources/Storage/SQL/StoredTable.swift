/// The tables of every database, in a form in which their content can be copied to another database.
///
/// Names and columns are those of `migrations/`. Three tables exist in this form in one kind of database only:
///
/// - A row of ``users`` has the profile and the attributes of one user. SQLite stores the two in separate tables.
/// - Rows of ``variationUsers`` and ``variationGoals`` are sums of tallies. PostgreSQL stores increments of the sums.
public enum StoredTable: String, Sendable, CaseIterable {
    case projects
    case datafiles
    /// The elements of datafiles that are stored in parts; see ``DatafileParts``.
    case definitions
    case attributes
    /// Deleted attributes whose values are being deleted, each with the last user whose value was deleted.
    case attributeRemovals = "attribute_removals"
    case segments
    case allocationPeriods = "allocation_periods"
    case statusPeriods = "status_periods"
    case trackedSeries = "tracked_series"
    /// The profile and the attributes of each user.
    case users
    case forcedVariations = "forced_variations"
    case stickyDocuments = "sticky_documents"
    case exposures
    case goalEvents = "goal_events"
    /// Users' totals of goals and series; see ``UserGoal``.
    case userGoals = "user_goals"
    /// The numbers of users; see ``UserCounts``.
    case variationUsers = "variation_users"
    /// The sums of goals and series; see ``GoalTally``.
    case variationGoals = "variation_goals"
    case frozenResults = "frozen_results"
    case lastUses = "last_uses"
    case proposals
    /// Looks of bandits; see ``StoredLook``.
    case banditLooks = "bandit_looks"
    case audit
    /// Erased and merged users; see ``RemovedUser``.
    case removedUsers = "removed_users"
    case webhooks
    /// Findings of the experiment monitor; see ``StoredLook``.
    case experimentFindings = "experiment_findings"

    /// The tables from which the rows with a project's SDK key are deleted with the project.
    package static let ofProject: [StoredTable] = [
        .datafiles, .definitions, .forcedVariations, .lastUses, .proposals, .banditLooks, .webhooks,
        .experimentFindings, .projects,
    ]

    /// The type of the values of a column.
    public enum ColumnType: Sendable {
        case text, integer, double, bytes
        /// An integer of 32 bits, for databases that distinguish the sizes of integers.
        case integer32
    }

    public struct Column: Sendable {
        public let name: String
        public let type: ColumnType
    }

    /// The columns. The first ``keyCount`` columns are the key.
    public var columns: [Column] {
        switch self {
        case .projects:
            Self.columns(
                ("sdk_key", .text), ("name", .text), ("created_at", .integer), ("is_default", .integer32))
        case .datafiles:
            Self.columns(
                ("version", .integer), ("sdk_key", .text), ("revision", .text), ("content", .bytes),
                ("stored_at", .integer), ("author", .text), ("base", .bytes))
        case .definitions:
            Self.columns(
                ("sdk_key", .text), ("list", .text), ("key", .text), ("version", .integer), ("until", .integer),
                ("position", .integer), ("body", .bytes))
        case .attributes: Self.columns(("number", .integer), ("name", .text), ("definition", .text))
        case .attributeRemovals: Self.columns(("number", .integer), ("after_user_id", .text))
        case .segments: Self.columns(("name", .text), ("conditions", .text))
        case .allocationPeriods:
            Self.columns(
                ("experiment_id", .text), ("number", .integer), ("sdk_key", .text), ("since", .integer),
                ("allocation", .text))
        case .statusPeriods:
            Self.columns(
                ("experiment_id", .text), ("number", .integer), ("sdk_key", .text), ("since", .integer),
                ("status", .text))
        case .trackedSeries:
            Self.columns(
                ("number", .integer), ("sdk_key", .text), ("experiment_id", .text), ("definition", .text),
                ("state", .integer), ("done_to", .integer), ("since", .integer))
        case .users:
            Self.columns(("user_id", .text), ("profile", .bytes), ("expires_at", .integer), ("attributes", .bytes))
        case .forcedVariations:
            Self.columns(("sdk_key", .text), ("user_id", .text), ("experiment_key", .text), ("variation_key", .text))
        case .stickyDocuments:
            Self.columns(("attribute_value", .text), ("attribute_name", .text), ("assignments", .text))
        case .exposures:
            Self.columns(
                ("user_id", .text), ("experiment_id", .text), ("number", .integer), ("experiment_key", .text),
                ("variation_id", .text), ("happened_at", .integer), ("flags", .integer32), ("sdk_key", .text),
                ("payload", .text), ("period", .integer))
        case .goalEvents:
            Self.columns(
                ("number", .integer), ("user_id", .text), ("goal", .text), ("value", .double),
                ("happened_at", .integer), ("received_at", .integer), ("sdk_key", .text), ("sender_id", .text),
                ("payload", .text))
        case .userGoals:
            Self.columns(
                ("user_id", .text), ("experiment_id", .text), ("goal", .text), ("before_count", .integer),
                ("before_value", .double), ("after_count", .integer), ("after_value", .double),
                ("valued", .integer))
        case .variationUsers:
            Self.columns(
                ("experiment_id", .text), ("variation_id", .text), ("period", .integer), ("day", .integer),
                ("counted", .integer), ("crossed", .integer), ("forced", .integer), ("not_running", .integer))
        case .variationGoals:
            Self.columns(
                ("experiment_id", .text), ("goal", .text), ("variation_id", .text), ("day", .integer),
                ("events", .integer), ("converted", .integer), ("converted_before", .integer),
                ("converted_both", .integer), ("y", .double), ("y_rest", .double), ("yy", .double),
                ("yy_rest", .double), ("x", .double), ("x_rest", .double), ("xx", .double), ("xx_rest", .double),
                ("xy", .double), ("xy_rest", .double), ("valued", .integer))
        case .frozenResults:
            Self.columns(("experiment_id", .text), ("frozen_at", .integer), ("goal", .text), ("content", .text))
        case .lastUses:
            Self.columns(
                ("sdk_key", .text), ("kind", .integer), ("key", .text), ("variation", .text), ("day", .integer))
        case .proposals:
            Self.columns(
                ("id", .text), ("sdk_key", .text), ("created_at", .integer), ("status", .integer), ("content", .text),
                ("body", .bytes))
        case .webhooks:
            Self.columns(("key", .text), ("sdk_key", .text), ("definition", .text), ("state", .text))
        case .banditLooks, .experimentFindings:
            Self.columns(
                ("sdk_key", .text), ("experiment_id", .text), ("looked_at", .integer), ("content", .text))
        case .audit:
            Self.columns(
                ("id", .integer), ("recorded_at", .integer), ("author", .text), ("request_id", .text),
                ("action", .text), ("user_id", .text), ("target", .text), ("before", .text), ("after", .text),
                ("sdk_key", .text))
        case .removedUsers:
            Self.columns(("user_hash", .integer), ("removed_at", .integer), ("account", .text))
        }
    }

    /// The number of columns that form the key.
    public var keyCount: Int {
        switch self {
        case .projects, .datafiles, .attributes, .attributeRemovals, .segments, .trackedSeries, .users, .goalEvents,
            .proposals, .audit, .webhooks:
            1
        case .allocationPeriods, .statusPeriods, .stickyDocuments, .exposures, .banditLooks, .removedUsers,
            .experimentFindings:
            2
        case .forcedVariations, .userGoals, .frozenResults: 3
        case .variationUsers, .variationGoals, .lastUses, .definitions: 4
        }
    }

    /// The number of rows that a copy reads and writes at once. It is smaller for datafiles and proposals, because each
    /// may have megabytes.
    public var pageSize: Int { [.datafiles, .proposals].contains(self) ? 16 : 2_000 }

    private static func columns(_ columns: (String, ColumnType)...) -> [Column] {
        columns.map { Column(name: $0.0, type: $0.1) }
    }

    package var columnNames: [String] { columns.map(\.name) }
    package var keyNames: [String] { Array(columnNames.prefix(keyCount)) }

    /// The names of all columns, as a statement selects them.
    package var columnList: String { Self.columnLists[self] ?? "" }
    private static let columnLists = Dictionary(
        uniqueKeysWithValues: allCases.map { ($0, $0.columnNames.joined(separator: ", ")) })
}

// MARK: Inserting

extension StoredTable {
    /// The treatment of an inserted row whose key exists already.
    package enum Conflict: Sendable {
        /// The statement fails.
        case fails
        /// The existing row stays.
        case keepsRow
        case replacesRow
    }

    /// What happens to a row whose key exists already.
    package var conflict: Conflict {
        switch self {
        case .datafiles, .definitions, .attributes, .attributeRemovals, .goalEvents, .audit: .fails
        case .allocationPeriods, .statusPeriods, .frozenResults: .keepsRow
        case .projects, .segments, .trackedSeries, .users, .forcedVariations, .stickyDocuments, .exposures, .userGoals,
            .variationUsers, .variationGoals, .lastUses, .proposals, .banditLooks, .removedUsers, .webhooks,
            .experimentFindings:
            .replacesRow
        }
    }

    /// The column whose value the database assigns to each inserted row, in ascending order.
    package var assignedColumn: String? {
        switch self {
        case .exposures, .goalEvents: "number"
        case .audit: "id"
        default: nil
        }
    }

    /// The columns of an inserted row: all but the assigned one.
    package var insertedColumns: [Column] { columns.filter { $0.name != assignedColumn } }
}
