import Migrations

/// Creates and migrates the tables, and checks their version and the rights of the database role. All functions block.
///
/// The table `holdfast_schema` has the version of the tables, which is the number of migrations that were applied.
enum Schema {
    /// The advisory lock under which servers migrate, one at a time. The number is arbitrary; nothing else uses it.
    private static let lock = 4_739_118_001

    /// The tables that Citus distributes, each with the column by which it is distributed: all rows of a user are on
    /// one node. The other tables are small and stay on the coordinator.
    private static let distributedTables: [(table: String, column: String)] = [
        ("users", "user_id"), ("exposures", "user_id"), ("goal_events", "user_id"),
        ("user_goals", "user_id"), ("sticky_documents", "attribute_value"),
    ]

    /// Creates the tables or migrates them to this release's version, in one transaction under a lock.
    ///
    /// - Parameter distributes: whether to distribute existing tables, which takes time and locks. New tables are
    ///   distributed in any case. Without the extension `citus` no tables are distributed.
    /// - Returns: the versions before and after.
    /// - Throws: an error with ``PostgreSQLError/unsupported`` if the tables are of a newer release, or the encoding of
    ///   the database is not UTF8; other errors of the server or the connection.
    static func migrate(_ handle: Handle, distributes: Bool) throws(PostgreSQLError) -> (from: Int, to: Int) {
        let steps = Migrations.postgreSQL
        let version = try version(handle)
        let distributable = distributes ? try undistributed(handle) : []
        guard version < steps.count || !distributable.isEmpty else {
            try refuseNewer(version)
            return (version, version)
        }
        guard try handle.execute("SHOW server_encoding").first?.first == "UTF8" else {
            throw PostgreSQLError(state: PostgreSQLError.unsupported, message: "its encoding must be UTF8")
        }
        try handle.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        do throws(PostgreSQLError) {
            try waitForMigrations(handle)
            let former = try applyMigrations(handle, distributes: distributes)
            try handle.execute("COMMIT")
            return (former, steps.count)
        } catch {
            _ = try? handle.execute("ROLLBACK")
            throw error
        }
    }

    /// Takes the lock under which servers migrate, until the end of the transaction.
    ///
    /// The transaction has no time limit, because a migration of large tables takes long, and so does waiting for
    /// another server's migration. But waiting for the lock of a table keeps its limit, because all later users of the
    /// table wait behind this transaction.
    private static func waitForMigrations(_ handle: Handle) throws(PostgreSQLError) {
        let lockTimeout = try handle.execute("SHOW lock_timeout").first?.first.flatMap { $0 } ?? "0"
        try handle.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        try handle.execute("SELECT pg_advisory_xact_lock(\(lock))")
        try handle.execute("SET LOCAL lock_timeout = '\(lockTimeout)'")
    }

    /// Applies the missing migrations, in the open transaction.
    ///
    /// - Returns: the version before.
    private static func applyMigrations(_ handle: Handle, distributes: Bool) throws(PostgreSQLError) -> Int {
        let steps = Migrations.postgreSQL
        // Another server may have created the table before this one got the lock, which `to_regclass` might not see.
        try handle.execute("CREATE TABLE IF NOT EXISTS holdfast_schema (version integer NOT NULL)")
        let version = try handle.execute("SELECT max(version) FROM holdfast_schema").first?.first
        let former = version?.flatMap { Int($0) } ?? 0
        try refuseNewer(former)
        for step in steps.dropFirst(former) { try handle.execute(String(decoding: step, as: UTF8.self)) }
        if former == 0 || distributes { try distribute(handle) }
        try handle.execute(
            "DELETE FROM holdfast_schema; INSERT INTO holdfast_schema (version) VALUES (\(steps.count))")
        return former
    }

    /// Selects the rights that a server needs and the role lacks.
    static let missingRights = """
        SELECT concat(privilege, ' on ', name)
        FROM unnest(ARRAY['users', 'exposures', 'goal_events', 'user_goals', 'forced_variations', 'tallies',
            'allocation_periods', 'sticky_documents', 'project_state', 'projects', 'datafiles', 'attributes',
            'segments', 'attribute_removals', 'audit', 'erasures', 'removed_users', 'leases', 'probes', 'latest_time', 'feed',
            'feed_state', 'feed_removals', 'frozen_results', 'tracked_series', 'last_uses', 'proposals',
            'bandit_looks', 'status_periods', 'webhooks', 'experiment_findings', 'definitions']) AS name,
            unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
        WHERE NOT has_table_privilege(name, privilege)
        UNION ALL
        SELECT concat(privilege, ' on ', name)
        FROM (VALUES ('event_numbers', 'USAGE'), ('feed_numbers', 'USAGE'), ('feed_numbers', 'SELECT'))
            AS needed (name, privilege)
        WHERE NOT has_sequence_privilege(name, privilege)
        """

    /// Returns the reason for refusing a role that lacks rights.
    static func lacking(_ rights: [String]) -> String {
        "the role of the database must have the rights that a server needs; it lacks "
            + rights.joined(separator: ", ")
    }

    /// Checks that the role has the rights that a server needs.
    ///
    /// - Throws: an error with ``PostgreSQLError/insufficientPrivilege`` if the role lacks rights.
    static func expectRights(_ handle: Handle) throws(PostgreSQLError) {
        let missing = try handle.execute(missingRights).compactMap { $0.first ?? nil }
        guard missing.isEmpty else {
            throw PostgreSQLError(state: PostgreSQLError.insufficientPrivilege, message: lacking(missing))
        }
    }

    /// Whether the database has the extension `citus`.
    private static func hasCitus(_ handle: Handle) throws(PostgreSQLError) -> Bool {
        !(try handle.execute("SELECT 1 FROM pg_extension WHERE extname = 'citus'").isEmpty)
    }

    /// Whether the tables are distributed over several nodes.
    static func isDistributed(_ handle: Handle) throws(PostgreSQLError) -> Bool {
        guard try hasCitus(handle) else { return false }
        return !(try handle.execute("SELECT 1 FROM pg_dist_partition WHERE logicalrelid = 'users'::regclass").isEmpty)
    }

    /// Returns the tables of ``distributedTables`` that are not distributed yet; none without Citus.
    private static func undistributed(_ handle: Handle) throws(PostgreSQLError) -> [(table: String, column: String)] {
        guard try hasCitus(handle) else { return [] }
        let rows = try handle.execute("SELECT relname FROM pg_dist_partition JOIN pg_class ON oid = logicalrelid")
        let distributed = Set(rows.compactMap { $0.first ?? nil })
        return distributedTables.filter { !distributed.contains($0.table) }
    }

    /// Distributes the tables that are not distributed yet, so that all rows of a user are on one node.
    private static func distribute(_ handle: Handle) throws(PostgreSQLError) {
        for (table, column) in try undistributed(handle) {
            let colocation = table == "users" ? "" : ", colocate_with => 'users'"
            try handle.execute("SELECT create_distributed_table('\(table)', '\(column)'\(colocation))")
        }
    }

    /// Checks that the tables are of this release's version, without changing them.
    ///
    /// - Throws: an error with ``PostgreSQLError/unsupported`` if they are not.
    static func expectCurrent(_ handle: Handle) throws(PostgreSQLError) {
        let version = try version(handle)
        let newest = Migrations.postgreSQL.count
        try refuseNewer(version)
        guard version == newest else {
            throw PostgreSQLError(
                state: PostgreSQLError.unsupported,
                message: "its version must be \(newest); it is \(version): run 'holdfast migrate'")
        }
    }

    /// Returns the version of the tables; 0 for a database without tables.
    private static func version(_ handle: Handle) throws(PostgreSQLError) -> Int {
        guard try handle.execute("SELECT to_regclass('holdfast_schema') IS NOT NULL").first?.first == "t" else {
            return 0
        }
        let row = try handle.execute("SELECT version FROM holdfast_schema").first
        return row?.first?.flatMap { Int($0) } ?? 0
    }

    /// Refuses a version of a newer release.
    private static func refuseNewer(_ version: Int) throws(PostgreSQLError) {
        let newest = Migrations.postgreSQL.count
        guard version <= newest else {
            throw PostgreSQLError(
                state: PostgreSQLError.unsupported,
                message: "its version must be at most \(newest), which this release knows; it is \(version)")
        }
    }
}
