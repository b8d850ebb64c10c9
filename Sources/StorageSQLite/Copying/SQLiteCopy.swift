import CSQLite
import Chronology
import Glibc
public import Storage

/// A SQLite database as the source or the target of a copy.
public final class SQLiteCopy: CopyTarget {
    private let path: String
    private let connection: Connection
    private var statements: [String: Statement] = [:]

    private init(_ path: String) throws(DatabaseError) {
        self.path = path
        do throws(SQLiteError) {
            // The lock timeout is in seconds. A negative cache size is in KiB, so the cache has 64 MiB.
            connection = try Connection(path: path, access: .write, lockTimeout: 10)
            try connection.execute("PRAGMA cache_size = -65536")
        } catch {
            throw DatabaseError(path, error)
        }
    }

    /// Opens the source of a copy, which servers may use at the same time.
    ///
    /// - Throws: ``DatabaseError`` if the file does not exist, is not of this release's version, or is itself the
    ///   target of an incomplete copy.
    public static func source(path: String) throws(DatabaseError) -> SQLiteCopy {
        guard access(path, F_OK) == 0 else { throw DatabaseError(path, "it must exist") }
        try DatabaseMaintenance.expectCurrentVersion(path: path)
        try CopyState.expectFinished(path: path)
        return try SQLiteCopy(path)
    }

    /// Opens the target of a copy; creates the file if it does not exist.
    ///
    /// - Throws: ``DatabaseError`` if the file cannot be opened or created, or is not a Holdfast database.
    public static func target(path: String) throws(DatabaseError) -> SQLiteCopy {
        try DatabaseFile(path: path).prepare(lockTimeout: 10)
        let copy = try SQLiteCopy(path)
        do throws(SQLiteError) {
            // Only the last transaction must be durable: after a crash, the copy is repeated and writes lost rows
            // again. A checkpoint starts when the log has 16,384 pages.
            try copy.connection.execute("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 16384")
        } catch {
            throw DatabaseError(path, error)
        }
        return copy
    }

    /// The path without symbolic links.
    public var name: String {
        guard let resolved = realpath(path, nil) else { return path }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    // MARK: Reading

    public func rows(of table: StoredTable, after row: CopiedRow?, limit: Int) throws -> [CopiedRow] {
        let keys = table.keyNames.joined(separator: ", ")
        let places = (1...table.keyCount).map { "?\($0)" }.joined(separator: ", ")
        let condition = row == nil ? "" : "WHERE (\(keys)) > (\(places)) "
        let sql =
            table == .users
            ? Self.users(condition, limit)
            : "SELECT \(table.columnList) FROM \(table.rawValue) \(condition)ORDER BY \(keys) LIMIT \(limit)"
        var found: [CopiedRow] = []
        found.reserveCapacity(limit)
        try statement(sql).run { statement in
            guard let row else { return }
            statement.bind(row.values.prefix(table.keyCount))
        } row: { statement throws(SQLiteError) in
            found.append(CopiedRow(statement, of: table))
        }
        return found
    }

    /// Returns a query for users with their profiles and attributes, which are in two tables. SQLite merges both in the
    /// order of the users' ids.
    private static func users(_ condition: String, _ limit: Int) -> String {
        """
        SELECT user_id, profiles.record, expires_at, user_attributes.record FROM (
            SELECT user_id FROM profiles \(condition) UNION SELECT user_id FROM user_attributes \(condition)
            ORDER BY user_id LIMIT \(limit)
        ) LEFT JOIN profiles USING (user_id) LEFT JOIN user_attributes USING (user_id) ORDER BY user_id
        """
    }

    public func counters() throws -> CopiedCounters {
        var last: [String: Int64] = [:]
        try statement("SELECT name, seq FROM sqlite_sequence").run(row: { last[$0.text(0)] = $0.integer(1) })
        return CopiedCounters(
            newestDatafile: last["datafiles"] ?? 0, newestAttribute: last["attributes"] ?? 0,
            newestEvent: max(last["exposures"] ?? 0, last["goal_events"] ?? 0), newestAuditEntry: last["audit"] ?? 0,
            newestSeries: try connection.integer("SELECT newest_series FROM counters"),
            eventsSince: Instant(milliseconds: try connection.integer("SELECT events_since FROM counters")),
            latestTime: Instant(milliseconds: try connection.integer("SELECT latest_time FROM counters")),
            storeID: try connection.integer("SELECT store_id FROM feed_state"))
    }

    // MARK: Writing

    public func mark() throws -> CopyMark? { try CopyState.read(connection) }

    public func begin(copyOf source: String, isFirst: Bool) throws {
        guard isFirst else { return try connection.execute("UPDATE copy_state SET is_complete = 0") }
        try connection.execute("CREATE TABLE copy_state (source TEXT NOT NULL, is_complete INTEGER NOT NULL) STRICT")
        try connection.change("INSERT INTO copy_state (source, is_complete) VALUES (?1, 0)", .text(source))
    }

    public func replace(_ old: [CopiedRow], with new: [CopiedRow], in table: StoredTable) throws {
        try transaction { () throws(SQLiteError) in
            let names = table == .users ? ["profiles", "user_attributes"] : [table.rawValue]
            for name in names {
                let condition = table.keyNames.enumerated().map { "\($1) = ?\($0 + 1)" }.joined(separator: " AND ")
                let delete = try statement("DELETE FROM \(name) WHERE \(condition)")
                for row in old { try delete.run { $0.bind(row.values.prefix(table.keyCount)) } }
            }
            guard table != .users else { return try insertUsers(new) }
            let places = (1...table.columns.count).map { "?\($0)" }.joined(separator: ", ")
            // If the target was copied earlier, a row with another key may have the same number or the same sender's
            // id. OR REPLACE replaces such a row.
            let insert = try statement(
                "INSERT OR REPLACE INTO \(table.rawValue) (\(table.columnList)) VALUES (\(places))"
            )
            for row in new { try insert.run { $0.bind(row.values[...]) } }
        }
    }

    /// Inserts users into both of their tables. A row has the id, the profile, its expiry, and the attributes.
    private func insertUsers(_ rows: [CopiedRow]) throws(SQLiteError) {
        let profile = try statement(
            "INSERT OR REPLACE INTO profiles (user_id, record, expires_at) VALUES (?1, ?2, ?3)")
        let attributes = try statement("INSERT OR REPLACE INTO user_attributes (user_id, record) VALUES (?1, ?2)")
        for row in rows {
            if row.values[1] != .null { try profile.run { $0.bind(row.values.prefix(3)) } }
            if row.values[3] != .null { try attributes.run { $0.bind([row.values[0], row.values[3]]) } }
        }
    }

    public func finish(_ counters: CopiedCounters) throws {
        let size = try countProfiles()
        try connection.execute("PRAGMA synchronous = FULL")
        try transaction { () throws(SQLiteError) in
            try setSequences(counters)
            try connection.change(
                """
                UPDATE counters SET
                    profiles = ?1, assignments = ?2, project_changes = project_changes + 1, latest_time = ?3,
                    newest_series = ?4, events_since = ?5
                """, .integer(size.profiles), .integer(size.assignments), .instant(counters.latestTime),
                .integer(counters.newestSeries), .instant(counters.eventsSince))
            try connection.change("UPDATE feed_state SET store_id = ?1", .integer(counters.storeID))
            try connection.execute("UPDATE copy_state SET is_complete = 1")
        }
        _ = try connection.checkpoint(.restart, lockTimeout: 10)
    }

    /// Counts the profiles in the target, and the assignments in them.
    private func countProfiles() throws(SQLiteError) -> (profiles: Int64, assignments: Int64) {
        var profiles: Int64 = 0
        var assignments: Int64 = 0
        try statement("SELECT record FROM profiles").run(row: { row in
            profiles += 1
            // A damaged profile is copied as it is, and counts as one without assignments.
            assignments += Int64((try? ProfileRecord(checking: row.bytes(0)))?.count ?? 0)
        })
        return (profiles, assignments)
    }

    /// Makes the tables continue the numbers of the source.
    private func setSequences(_ counters: CopiedCounters) throws(SQLiteError) {
        let lastNumbers = [
            ("datafiles", counters.newestDatafile), ("attributes", counters.newestAttribute),
            ("exposures", counters.newestEvent), ("goal_events", counters.newestEvent),
            ("audit", counters.newestAuditEntry),
        ]
        for (table, last) in lastNumbers {
            try connection.change("DELETE FROM sqlite_sequence WHERE name = ?1", .text(table))
            try connection.change(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", .text(table), .integer(last))
        }
    }

    /// Runs a write transaction, which counts as a commit of Holdfast.
    private func transaction(_ body: () throws(SQLiteError) -> Void) throws(SQLiteError) {
        try connection.execute("BEGIN IMMEDIATE")
        do throws(SQLiteError) {
            try connection.execute("UPDATE counters SET commits = commits + 1")
            try body()
            try connection.execute("COMMIT")
        } catch {
            if connection.isInTransaction { try? connection.execute("ROLLBACK") }
            throw error
        }
    }

    /// Returns the statement for a text, which is prepared at its first use.
    private func statement(_ sql: String) throws(SQLiteError) -> Statement {
        if let known = statements[sql] { return known }
        let statement = try connection.prepare(sql)
        statements[sql] = statement
        return statement
    }
}

extension Statement {
    fileprivate func bind(_ values: ArraySlice<CopiedValue>) {
        for (index, value) in values.enumerated() {
            let place = Int32(index + 1)
            switch value {
            case .null: bind(Int64?.none, at: place)
            case .integer(let number): bind(number, at: place)
            case .double(let number): bind(number, at: place)
            case .text(let bytes): bind(text: bytes, at: place)
            case .bytes(let bytes): bind(bytes, at: place)
            }
        }
    }
}

/// The table `copy_state` with the ``CopyMark``, which only the target of a copy has.
enum CopyState {
    /// Returns the mark; `nil` if the database is not the target of a copy.
    static func read(_ connection: Connection) throws(SQLiteError) -> CopyMark? {
        guard try connection.integer("SELECT count(*) FROM sqlite_schema WHERE name = 'copy_state'") > 0 else {
            return nil
        }
        return try connection.all("SELECT source, is_complete FROM copy_state") {
            CopyMark(source: $0.text(0), isComplete: $0.integer(1) != 0)
        }.first
    }

    /// Refuses a database whose copy is not complete.
    ///
    /// - Parameter removesMark: whether to remove the mark of a complete copy. A server does, because the database is
    ///   independent of the source once a server uses it.
    /// - Throws: ``DatabaseError`` if a copy into the database is not complete.
    static func expectFinished(path: String, removesMark: Bool = false) throws(DatabaseError) {
        let mark: CopyMark?
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .write, lockTimeout: 10)
            connection.setCheckpointOnClose(false)
            mark = try read(connection)
            if removesMark, mark?.isComplete == true { try connection.execute("DROP TABLE IF EXISTS copy_state") }
        } catch {
            throw DatabaseError(path, error)
        }
        if let refusal = mark?.refusal { throw DatabaseError(path, refusal) }
    }
}
