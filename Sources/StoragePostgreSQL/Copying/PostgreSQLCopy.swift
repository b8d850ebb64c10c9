import Bucketing
import CPostgreSQL
public import Storage

/// A PostgreSQL database as the source or the target of a copy. Blocks; used by one thread.
public final class PostgreSQLCopy: CopyTarget {
    public let name: String
    private let handle: Handle
    /// Whether the copy began with empty tables, so that inserted rows cannot conflict with others.
    private var isFresh = false

    private init(_ name: String, _ handle: Handle) {
        self.name = name
        self.handle = handle
    }

    /// Opens the source of a copy, which servers may use at the same time.
    ///
    /// - Throws: ``DatabaseError`` if the database cannot be reached, is not of this release's version, or is itself
    ///   the target of an incomplete copy.
    public static func source(url: String) throws(DatabaseError) -> PostgreSQLCopy {
        try open(url) { handle throws(PostgreSQLError) in
            try Schema.expectCurrent(handle)
            try CopyState.expectFinished(handle)
        }
    }

    /// Opens the target of a copy; creates its tables if they are missing.
    ///
    /// - Throws: ``DatabaseError`` if the database cannot be reached, or is of a newer release.
    public static func target(url: String) throws(DatabaseError) -> PostgreSQLCopy {
        try open(url) { handle throws(PostgreSQLError) in _ = try Schema.migrate(handle, distributes: false) }
    }

    private static func open(
        _ url: String, _ prepare: (Handle) throws(PostgreSQLError) -> Void
    ) throws(DatabaseError) -> PostgreSQLCopy {
        var configuration = PostgreSQLConfiguration(url: url)
        // There may be a pooler, so neither prepared statements nor settings of the session are used.
        configuration.isPooled = true
        do throws(PostgreSQLError) {
            let handle = try Connector.open(configuration)
            try prepare(handle)
            return PostgreSQLCopy(ConnectionString(url).withoutSecrets, handle)
        } catch {
            throw DatabaseError(url, error)
        }
    }

    // MARK: Reading

    public func rows(of table: StoredTable, after row: CopiedRow?, limit: Int) throws -> [CopiedRow] {
        if table.isTally { return try tallies(table, after: row) }
        let keys = table.keyNames.joined(separator: ", ")
        let places = (1...table.keyCount).map { "$\($0)" }.joined(separator: ", ")
        var conditions = row == nil ? [] : ["(\(keys)) > (\(places))"]
        // Users without a profile and attributes are left out. They have rows because other tables refer to them.
        if table == .users { conditions.append("(profile IS NOT NULL OR attributes IS NOT NULL)") }
        let condition = conditions.isEmpty ? "" : "WHERE \(conditions.joined(separator: " AND ")) "
        // In a row without a profile, `expires_at` is only a mark for sweeps; see ``ProfileRecord/maybeEmpty``.
        let columns = table.columnNames.map { $0 == "expires_at" ? "CASE WHEN profile IS NOT NULL THEN \($0) END" : $0 }
        let rows = try handle.query(
            "SELECT \(columns.joined(separator: ", ")) FROM \(table.rawValue) \(condition)"
                + "ORDER BY \(keys) LIMIT \(limit)",
            row.map { $0.values.prefix(table.keyCount).map { SQLValue($0) } } ?? [])
        return rows.map { CopiedRow($0, of: table) }
    }

    /// Returns sums of tallies after a row. All sums are of one experiment: the experiment of the row, or the next one
    /// if that experiment has no sums after the row.
    private func tallies(_ table: StoredTable, after row: CopiedRow?) throws(PostgreSQLError) -> [CopiedRow] {
        let kind = table == .variationUsers ? "goal IS NULL" : "goal IS NOT NULL"
        var experiment = row?.values[0].string ?? ""
        var comparison = ">="
        while true {
            let next = try handle.query(
                "SELECT min(experiment_id) FROM tallies WHERE \(kind) AND experiment_id \(comparison) $1",
                [.text(experiment)])
            guard let nextExperiment = next[0].optionalText(0) else { return [] }
            experiment = nextExperiment
            comparison = ">"
            let rows = try handle.query(
                """
                SELECT experiment_id, variation_id, period, day, goal, counts, sums FROM tallies
                WHERE \(kind) AND experiment_id = $1 ORDER BY number
                """, [.text(experiment)])
            var sums: [TallyRow.Key: TallyRow] = [:]
            for row in rows.lazy.compactMap({ TallyRow($0) }) {
                // A single row is not added to zero, which could give another representation of the same sum.
                if sums[row.key]?.add(row) == nil { sums[row.key] = row }
            }
            var found = sums.values.map { CopiedRow($0, in: table) }.sorted { $0.precedes($1, in: table) }
            if let row { found.removeAll { !row.precedes($0, in: table) } }
            if !found.isEmpty { return found }
        }
    }

    public func counters() throws -> CopiedCounters {
        let rows = try handle.query(
            """
            SELECT newest_datafile, newest_attribute,
                (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM event_numbers),
                (SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('audit', 'id')), 0)),
                newest_series, events_since, (SELECT time FROM latest_time),
                (SELECT store_id FROM feed_state)
            FROM project_state
            """)
        return CopiedCounters(
            newestDatafile: rows[0].integer(0), newestAttribute: rows[0].integer(1), newestEvent: rows[0].integer(2),
            newestAuditEntry: rows[0].integer(3), newestSeries: rows[0].integer(4),
            eventsSince: rows[0].instant(5), latestTime: rows[0].instant(6), storeID: rows[0].integer(7))
    }

    // MARK: Writing

    public func mark() throws -> CopyMark? { try CopyState.read(handle) }

    public func begin(copyOf source: String, isFirst: Bool) throws {
        // A running server renews the lease of maintenance.
        let leases = "SELECT FROM leases WHERE name = 'maintenance' AND ends_at > clock_timestamp()"
        guard try !isFirst || handle.query(leases).isEmpty else {
            throw CopyError("no server must use \(name); one does, or did less than a minute ago: stop it and wait")
        }
        try CopyState.set(CopyMark(source: source, isComplete: false), handle)
        isFresh = isFirst
    }

    public func replace(_ old: [CopiedRow], with new: [CopiedRow], in table: StoredTable) throws {
        try transaction { () throws(PostgreSQLError) in
            let deleted = isFresh ? old : old + new
            if !deleted.isEmpty { try delete(deleted, from: table) }
            // If the target was copied earlier, an event with the same sender's id may have another number.
            if table == .goalEvents, !isFresh, !new.isEmpty {
                _ = try handle.query(
                    """
                    DELETE FROM goal_events USING unnest($1::text[], $2::text[]) AS new (user_id, sender_id)
                    WHERE goal_events.user_id = new.user_id AND goal_events.sender_id = new.sender_id
                    """, [.values(new, at: 1, .text), .values(new, at: 7, .text)])
            }
            guard !new.isEmpty else { return }
            var input = CopyInput()
            for row in new { row.append(to: &input, of: table) }
            try handle.copy(input.end(), into: table.target)
        }
    }

    /// Deletes the rows that have the keys of other rows. The rows of both kinds of tallies are in one table, and only
    /// tallies of goals have a goal.
    private func delete(_ rows: [CopiedRow], from table: StoredTable) throws(PostgreSQLError) {
        var columns = table.columns.prefix(table.keyCount).map { $0 }
        var condition = columns.map { "found.\($0.name) = old.\($0.name)" }.joined(separator: " AND ")
        if table == .variationUsers { condition += " AND found.goal IS NULL" }
        if table == .variationGoals { columns = table.columns.prefix(4).map { $0 } }
        let arrays = columns.enumerated().map { "$\($0 + 1)::\($1.type == .text ? "text" : "bigint")[]" }
        _ = try handle.query(
            """
            DELETE FROM \(table.isTally ? "tallies" : table.rawValue) AS found
            USING unnest(\(arrays.joined(separator: ", "))) AS old (\(columns.map(\.name).joined(separator: ", ")))
            WHERE \(condition)
            """, columns.indices.map { .values(rows, at: $0, columns[$0].type) })
    }

    public func finish(_ counters: CopiedCounters) throws {
        try transaction { () throws(PostgreSQLError) in
            // The database role may have a time-out that is too short for a copy.
            try handle.execute("SET LOCAL statement_timeout = 0")
            // Every user with rows in other tables needs a row in `users`.
            try handle.execute(
                """
                INSERT INTO users (user_id, version)
                SELECT user_id, (random() * 9e18)::bigint FROM (
                    SELECT user_id FROM exposures UNION SELECT user_id FROM goal_events
                    UNION SELECT user_id FROM user_goals UNION SELECT user_id FROM forced_variations
                ) AS others
                ON CONFLICT (user_id) DO NOTHING
                """)
            _ = try handle.query(
                """
                UPDATE project_state SET changes = changes + 1, newest_datafile = $1, newest_attribute = $2,
                    newest_series = $3, events_since = $4
                """,
                [
                    .integer(counters.newestDatafile), .integer(counters.newestAttribute),
                    .integer(counters.newestSeries), .instant(counters.eventsSince),
                ])
            _ = try handle.query("UPDATE feed_state SET store_id = $1", [.integer(counters.storeID)])
            _ = try handle.query("UPDATE latest_time SET time = $1", [.instant(counters.latestTime)])
            try handle.setSequence("'event_numbers'", to: counters.newestEvent)
            try handle.setSequence("pg_get_serial_sequence('audit', 'id')", to: counters.newestAuditEntry)
            guard let source = try CopyState.read(handle)?.source else { return }
            try CopyState.set(CopyMark(source: source, isComplete: true), handle)
        }
        // For the query planner, and for the number of profiles that servers estimate.
        try handle.execute("ANALYZE users, exposures, goal_events, user_goals, tallies, sticky_documents, audit")
    }

    private func transaction(_ body: () throws(PostgreSQLError) -> Void) throws(PostgreSQLError) {
        try handle.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        do throws(PostgreSQLError) {
            try body()
            try handle.execute("COMMIT")
        } catch {
            _ = try? handle.execute("ROLLBACK")
            throw error
        }
    }
}

/// The ``CopyMark`` of a database that is the target of a copy.
///
/// It is stored as a row of the table `leases`, not as a table of its own as in SQLite, because the server's role may
/// lack the right to drop tables.
enum CopyState {
    /// The beginning of the row's name, before the name of the source.
    private static let prefix = "copy of "

    /// Returns the mark; `nil` if the database is not the target of a copy.
    static func read(_ handle: Handle) throws(PostgreSQLError) -> CopyMark? {
        try handle.query("SELECT name, holder FROM leases WHERE name LIKE 'copy of %'").first.map {
            CopyMark(source: String($0.text(0).dropFirst(prefix.count)), isComplete: $0.integer(1) != 0)
        }
    }

    /// Stores the mark.
    static func set(_ mark: CopyMark, _ handle: Handle) throws(PostgreSQLError) {
        _ = try handle.query(
            """
            INSERT INTO leases (name, holder, ends_at) VALUES ($1, $2, 'infinity')
            ON CONFLICT (name) DO UPDATE SET holder = excluded.holder
            """, [.text(prefix + mark.source), .integer(mark.isComplete ? 1 : 0)])
    }

    /// Refuses a database whose copy is not complete.
    ///
    /// - Parameter removesMark: whether to remove the mark of a complete copy. A server does, because the database is
    ///   independent of the source once a server uses it.
    /// - Throws: ``PostgreSQLError`` if a copy into the database is not complete.
    static func expectFinished(_ handle: Handle, removesMark: Bool = false) throws(PostgreSQLError) {
        guard let mark = try read(handle) else { return }
        if let refusal = mark.refusal { throw PostgreSQLError(state: "", message: refusal) }
        if removesMark { try handle.execute("DELETE FROM leases WHERE name LIKE 'copy of %'") }
    }
}
