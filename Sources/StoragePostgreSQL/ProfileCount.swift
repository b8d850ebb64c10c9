/// The numbers of profiles and assignments in the database: exact in a small database, estimated from a sample in a
/// large one.
///
/// A sample reads a percentage of the table's pages. The percentage follows from PostgreSQL's estimate of the table's
/// size. Citus has no estimate for a distributed table, so the sample grows until it has enough rows.
enum ProfileCount {
    /// The largest number of rows that are counted without sampling.
    private static let exact = 100_000.0
    /// The number of rows that a sample must have.
    private static let enough = 10_000.0

    /// Counts the profiles and assignments, and blocks until done.
    static func read(
        _ handle: Handle, isDistributed: Bool
    ) throws(PostgreSQLError) -> (profiles: Int64, assignments: Int64) {
        let row = try handle.execute(sizeQuery).first
        var percentage = percentage(rows: row?.first?.flatMap { Double($0) } ?? 0, isDistributed: isDistributed)
        while true {
            let counts = try handle.execute(sampleQuery(of: "\(percentage)")).first
            func count(_ index: Int) -> Double { counts?[index].flatMap { Double($0) } ?? 0 }
            guard let larger = largerPercentage(than: percentage, rows: count(2)) else {
                return (scaled(count(0), percentage), scaled(count(1), percentage))
            }
            percentage = larger
        }
    }

    private static let sizeQuery = "SELECT reltuples::float8 FROM pg_class WHERE oid = 'users'::regclass"
    /// Selects the estimated number of rows of the table.
    static let size = Statement("users_size", sizeQuery)
    /// Selects the numbers of profiles, assignments and rows in a sample of a percentage of the table.
    static let sample = Statement("users_sample", sampleQuery(of: "$1"))

    private static func sampleQuery(of percentage: String) -> String {
        """
        SELECT count(profile)::float8, coalesce(sum(assignments), 0)::float8, count(*)::float8
        FROM users TABLESAMPLE SYSTEM (\(percentage))
        """
    }

    /// The percentage of the first sample of a distributed table.
    private static let firstDistributedPercentage = 0.01
    /// The factor by which the percentage grows until a sample has enough rows.
    private static let growth = 10.0

    /// Returns the percentage of the first sample.
    ///
    /// - Parameter rows: the estimated number of rows of the table.
    static func percentage(rows: Double, isDistributed: Bool) -> Double {
        if isDistributed { return firstDistributedPercentage }
        return rows <= exact ? 100 : 100 * exact / rows
    }

    /// Returns the percentage of the next sample.
    ///
    /// - Parameter rows: the number of rows of the last sample.
    /// - Returns: `nil` if the sample has enough rows.
    static func largerPercentage(than percentage: Double, rows: Double) -> Double? {
        rows >= enough || percentage >= 100 ? nil : min(100, percentage * growth)
    }

    /// Returns the estimate for the whole table from a number in a sample.
    static func scaled(_ count: Double, _ percentage: Double) -> Int64 {
        Int64(exactly: (count * 100 / percentage).rounded()) ?? 0
    }
}
