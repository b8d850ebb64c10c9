import Migrations

/// The version of the tables.
enum Schema {
    /// The advisory lock of servers that start together; any number that no one else uses.
    private static let lock = 4_739_118_001

    /// Brings the tables to this release's version, in one transaction under a lock.
    ///
    /// - Returns: the versions before and after.
    static func migrate(_ handle: Handle) throws(PostgreSQLError) -> (from: Int, to: Int) {
        let steps = Migrations.postgreSQL
        let version = try version(handle)
        guard version < steps.count else {
            try refuseNewer(version)
            return (version, version)
        }
        guard try handle.execute("SHOW server_encoding").first?.first == "UTF8" else {
            throw PostgreSQLError(state: "0A000", message: "its encoding must be UTF8")
        }
        try handle.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        do throws(PostgreSQLError) {
            try handle.execute("SELECT pg_advisory_xact_lock(\(lock))")
            // Another server may have migrated in the meantime, which the catalog may not show to a query by name.
            try handle.execute("CREATE TABLE IF NOT EXISTS holdfast_schema (version integer NOT NULL)")
            let version = try handle.execute("SELECT max(version) FROM holdfast_schema").first?.first
            let from = version?.flatMap { Int($0) } ?? 0
            try refuseNewer(from)
            for step in steps.dropFirst(from) { try handle.execute(String(decoding: step, as: UTF8.self)) }
            try handle.execute(
                "DELETE FROM holdfast_schema; INSERT INTO holdfast_schema (version) VALUES (\(steps.count))")
            try handle.execute("COMMIT")
            return (from, steps.count)
        } catch {
            _ = try? handle.execute("ROLLBACK")
            throw error
        }
    }

    /// 0 for a database without tables.
    private static func version(_ handle: Handle) throws(PostgreSQLError) -> Int {
        guard try handle.execute("SELECT to_regclass('holdfast_schema') IS NOT NULL").first?.first == "t" else {
            return 0
        }
        let row = try handle.execute("SELECT version FROM holdfast_schema").first
        return row?.first?.flatMap { Int($0) } ?? 0
    }

    private static func refuseNewer(_ version: Int) throws(PostgreSQLError) {
        let newest = Migrations.postgreSQL.count
        guard version <= newest else {
            throw PostgreSQLError(
                state: "0A000",
                message: "its version must be at most \(newest), which this release knows; it is \(version)")
        }
    }
}

/// The numbers of profiles and assignments of all servers: counted in a small database, estimated from a sample in a great
/// one.
enum ProfileCount {
    /// Rows that are counted without sampling.
    private static let exact = 100_000.0

    static func read(_ handle: Handle) throws(PostgreSQLError) -> (profiles: Int64, assignments: Int64) {
        let row = try handle.execute(sizeQuery).first
        let percentage = percentage(rows: row?.first?.flatMap { Double($0) } ?? 0)
        let counts = try handle.execute(
            """
            SELECT count(profile), coalesce(sum(assignments), 0) FROM users TABLESAMPLE SYSTEM (\(percentage))
            """
        ).first
        func count(_ index: Int) -> Int64 {
            scaled(counts?[index].flatMap { Double($0) } ?? 0, percentage)
        }
        return (count(0), count(1))
    }

    private static let sizeQuery = "SELECT reltuples::float8 FROM pg_class WHERE oid = 'users'::regclass"
    static let size = Statement("users_size", sizeQuery)
    static let sample = Statement(
        "users_sample",
        """
        SELECT count(profile)::float8, coalesce(sum(assignments), 0)::float8 FROM users TABLESAMPLE SYSTEM ($1)
        """)

    static func percentage(rows: Double) -> Double {
        rows <= exact ? 100 : 100 * exact / rows
    }

    static func scaled(_ count: Double, _ percentage: Double) -> Int64 {
        Int64(exactly: (count * 100 / percentage).rounded()) ?? 0
    }
}
