import Bucketing
import Storage

/// The row of the table `project_state`: the counter of project changes, the newest datafile, and the newest attribute.
enum ProjectStateRow {
    /// The advisory lock of the newest datafile. A transaction that activates a datafile holds it exclusively; a
    /// transaction that depends on the newest one holds it shared.
    private static let lock: Int64 = 4_739_118_002
    private static let columns = "changes, newest_datafile, newest_attribute"

    /// Selects the row.
    static let read = Statement("project_state", "SELECT \(columns) FROM project_state")
    /// Selects the row, and locks it until the end of the transaction.
    static let readLocked = Statement("project_state_locked", "SELECT \(columns) FROM project_state FOR UPDATE")
    /// Counts a change of projects.
    static let changed = Statement("project_changed", "UPDATE project_state SET changes = changes + 1")
    /// The channel of `LISTEN` and `NOTIFY` for changes of projects.
    static let channel = "holdfast_projects"
    /// Makes a session receive the notifications.
    static let listen = "LISTEN \(channel)"
    /// Notifies all servers when the transaction commits.
    static let notify = Statement("notify_projects", "SELECT pg_notify('\(channel)', '')")
    private static let lockShared = Statement("datafile_lock_shared", "SELECT pg_advisory_xact_lock_shared($1)")
    private static let lockExclusive = Statement("datafile_lock", "SELECT pg_advisory_xact_lock($1)")
    /// Fails with ``PostgreSQLError/versionConflict`` if another datafile is the newest: the division by zero aborts
    /// the transaction without a further round trip.
    private static let expectNewest = Statement(
        "expect_newest_datafile", "SELECT 1 / (newest_datafile = $1)::integer FROM project_state")
    /// Counts a change of projects that activates a datafile.
    static let newestDatafile = Statement(
        "newest_datafile", "UPDATE project_state SET changes = changes + 1, newest_datafile = $1")
    /// Counts a change of projects that adds an attribute.
    static let newestAttribute = Statement(
        "newest_attribute", "UPDATE project_state SET changes = changes + 1, newest_attribute = $1")

    /// The version of the newest datafile in a row of ``read``.
    static func newestDatafile(in row: ResultRow) -> Int64 { row.bounded(1) }

    /// Gives a row of ``read`` to the records of a rule.
    static func take(_ row: any Row, into records: inout SharedRecords) {
        records.newestDatafile = row.bounded(1)
        records.newestAttribute = row.bounded(2)
    }

    /// Returns the statements that fail if a datafile is not the newest one, and that keep other transactions from
    /// activating a newer one until the commit. There are two statements, because the second one must see all commits
    /// from before the lock was taken.
    static func expectNewest(_ version: Int64) -> [SQLQuery] {
        [lockShared(.integer(lock)), expectNewest(.integer(version))]
    }

    /// The statement that waits for the transactions that depend on the newest datafile, and keeps other transactions
    /// from depending on it until the commit.
    static var lockNewest: SQLQuery { lockExclusive(.integer(lock)) }
}

/// The `audit` table.
enum AuditRows {
    /// Moves the entries of one user to another.
    static let move = Statement("move_audit", "UPDATE audit SET user_id = $2 WHERE user_id = $1")
    /// Deletes the oldest entries from before a time, up to a number.
    static let prune = Statement(
        "prune_audit",
        """
        DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE recorded_at < $1 ORDER BY recorded_at LIMIT $2)
        RETURNING id
        """)
}

/// The `erasures` table: users who were erased recently.
///
/// Another server may have received events of a user before the erasure. If these events still wait to be written, they
/// must not restore the user. (The server that erased the user writes its events and the erasure in the right order.)
/// Servers compare ages instead of times, because the clocks of hosts differ.
enum ErasureRows {
    /// Selects the seconds since users were erased by other servers.
    static let ages = Statement(
        "erasure_ages",
        """
        SELECT user_hash, extract(epoch FROM clock_timestamp() - erased_at)::float8 FROM erasures
        WHERE user_hash = ANY($1) AND eraser <> $2
        """)
    /// Inserts erasures that this server has made.
    static let insert = Statement(
        "insert_erasures",
        """
        INSERT INTO erasures (user_hash, eraser, erased_at)
        SELECT user_hash, $2, clock_timestamp() FROM unnest($1::bigint[]) AS user_hash
        ON CONFLICT (user_hash) DO UPDATE SET eraser = excluded.eraser, erased_at = excluded.erased_at
        """)
    /// Fails with ``PostgreSQLError/versionConflict`` if a user was erased or merged since a time.
    static let expectNoRemoval = Statement(
        "expect_no_removal",
        """
        SELECT 1 / (count(*) = 0)::integer
        FROM unnest($1::bigint[], $2::bigint[]) AS expected (user_hash, since) JOIN removed_users USING (user_hash)
        WHERE removed_at >= since
        """)
    /// Deletes erasures that are older than a number of seconds.
    static let prune = Statement(
        "prune_erasures", "DELETE FROM erasures WHERE erased_at < clock_timestamp() - make_interval(secs => $1)")
}
