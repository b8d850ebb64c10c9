import Bucketing
import Chronology
import Storage

/// The `users` table. A row has the profile and the attributes of a user, and a version that every change of the user
/// renews. A user with rows in other tables has a row here, even without a profile and attributes.
enum UserRows {
    // MARK: Reading

    /// Selects the profiles of users, for lookups.
    static let profiles = Statement("profiles", "SELECT user_id, profile FROM users WHERE user_id = ANY($1)")
    /// Selects the attributes of users, for lookups.
    static let attributes = Statement("attributes", "SELECT user_id, attributes FROM users WHERE user_id = ANY($1)")
    /// Selects the versions and profiles of users, for changes.
    static let profileRows = Statement(
        "profile_rows", "SELECT user_id, version, profile FROM users WHERE user_id = ANY($1)")
    /// Selects the versions, profiles and attributes of users, for changes.
    static let wholeRows = Statement(
        "whole_rows", "SELECT user_id, version, profile, attributes FROM users WHERE user_id = ANY($1)")
    /// Locks the row of one user, because Citus refuses to lock rows of several shards in one statement. The rows of
    /// several users are locked one after the other in the order of their ids. All statements lock rows in this order,
    /// which prevents deadlocks.
    static let lockRow = Statement("lock_row", "SELECT 1 FROM users WHERE user_id = $1 FOR UPDATE")

    /// Selects the rows that nobody else has locked.
    static let unlockedRows = Statement(
        "unlocked_rows", "SELECT user_id FROM users WHERE user_id = ANY($1) FOR NO KEY UPDATE SKIP LOCKED")
    /// Locks the table as changes do, for probes.
    static let touch = Statement("touch_rows", "UPDATE users SET version = version WHERE user_id = ANY($1)")

    // MARK: Writing

    // Each statement changes only rows that still have the version that was read, and returns the users whose rows it
    // has changed. `ANY` repeats the condition of the join, to show Citus which shards are concerned.

    /// Replaces profiles. `expected` is the version that was read, and `version` is the new one.
    static let updateProfiles = Statement(
        "update_profiles",
        """
        UPDATE users SET version = new.version, profile = new.profile, assignments = new.assignments,
            expires_at = new.expires_at
        FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[], $6::bigint[])
            AS new (user_id, expected, version, profile, assignments, expires_at)
        WHERE users.user_id = new.user_id AND users.version = new.expected AND users.user_id = ANY($1)
        RETURNING users.user_id
        """)
    /// Replaces attributes.
    static let updateAttributes = Statement(
        "update_attributes",
        """
        UPDATE users SET version = new.version, attributes = new.attributes
        FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[]) AS new (user_id, expected, version, attributes)
        WHERE users.user_id = new.user_id AND users.version = new.expected AND users.user_id = ANY($1)
        RETURNING users.user_id
        """)
    /// Gives rows a new version only, so that transactions that have read other tables' rows of the users conflict.
    static let updateVersions = Statement(
        "update_versions",
        """
        UPDATE users SET version = new.version
        FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS new (user_id, expected, version)
        WHERE users.user_id = new.user_id AND users.version = new.expected AND users.user_id = ANY($1)
        RETURNING users.user_id
        """)
    /// Deletes rows.
    static let deleteRows = Statement(
        "delete_rows",
        """
        DELETE FROM users USING unnest($1::text[], $2::bigint[]) AS old (user_id, expected)
        WHERE users.user_id = old.user_id AND users.version = old.expected AND users.user_id = ANY($1)
        RETURNING users.user_id
        """)
    /// Inserts rows. Does not replace a row that another transaction has inserted since the read.
    static let insertRows = Statement(
        "insert_rows",
        """
        INSERT INTO users (user_id, version, profile, assignments, expires_at, attributes)
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[])
        ON CONFLICT (user_id) DO NOTHING
        RETURNING user_id
        """)

    // MARK: Rows that were only read

    /// Returns the statements that keep rows that were only read from changing until the commit. They fail with
    /// ``PostgreSQLError/versionConflict`` if one of them has changed already.
    ///
    /// - Parameter versions: the versions that were read, by user; `nil` for a user without a row, who must not get
    ///   one.
    static func keep(_ versions: [Identifier: Int64?]) -> [SQLQuery] {
        var queries: [SQLQuery] = []
        var absent: [Identifier] = []
        for (userID, version) in versions.sorted(by: { $0.key < $1.key }) {
            guard let version else {
                absent.append(userID)
                continue
            }
            queries.append(keepRow(.text(userID.string), .integer(version)))
        }
        guard !absent.isEmpty else { return queries }
        // A row that does not exist cannot be locked. Instead the row is inserted and deleted: until the commit, other
        // transactions that insert the same row wait.
        let ids = SQLValue.texts(absent.map(\.string))
        let newVersions = SQLValue.integers(absent.map { _ in newVersion() })
        let none = [Int64?](repeating: nil, count: absent.count)
        let noBytes = [[UInt8]?](repeating: nil, count: absent.count)
        queries.append(
            insertRows.guarded(
                ids, newVersions, .blobs(noBytes), .integers(absent.map { _ in 0 }), .integers(none),
                .blobs(noBytes)))
        queries.append(deleteRows.guarded(ids, newVersions))
        return queries
    }

    /// Returns a new version for a row. Versions are random, so that a row that was deleted and created again does not
    /// have a version that was read before.
    static func newVersion() -> Int64 {
        .random(in: .min ... .max)
    }

    /// Locks a row that was only read. Fails with ``PostgreSQLError/versionConflict`` if the row has another version.
    private static let keepRow = Statement(
        "keep_row",
        """
        SELECT 1 / (count(*) = 1)::integer
        FROM (SELECT FROM users WHERE user_id = $1 AND version = $2 FOR SHARE) AS kept
        """)

    // MARK: Maintenance

    /// Selects the next users with attributes, in the order of their ids.
    static let attributePage = Statement(
        "attribute_page",
        """
        SELECT user_id, attributes FROM users WHERE user_id > $1 AND attributes IS NOT NULL ORDER BY user_id LIMIT $2
        """)
    /// Selects rows whose ``ProfileRecord/sweptAt(from:)`` has passed, and whether they have no profile.
    static let expired = Statement(
        "expired_profiles",
        "SELECT user_id, profile IS NULL FROM users WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2")
    /// Selects the rows that have neither a profile nor attributes, and that no distributed table refers to.
    static let emptyRows = Statement(
        "empty_rows",
        """
        SELECT user_id, version FROM users WHERE user_id = ANY($1) AND profile IS NULL AND attributes IS NULL
            AND NOT EXISTS (SELECT FROM exposures WHERE exposures.user_id = users.user_id)
            AND NOT EXISTS (SELECT FROM goal_events WHERE goal_events.user_id = users.user_id)
            AND NOT EXISTS (SELECT FROM user_goals WHERE user_goals.user_id = users.user_id)
        """)
    /// Removes the mark ``ProfileRecord/maybeEmpty`` from rows.
    static let unmarkRows = Statement(
        "unmark_rows",
        "UPDATE users SET expires_at = NULL WHERE user_id = ANY($1) AND expires_at = \(ProfileRecord.maybeEmpty.milliseconds)"
    )

    /// Selects the nodes of a Citus cluster that have the rows of users.
    static let nodes = Statement(
        "nodes_of_users",
        """
        SELECT asked.user_id, pg_dist_placement.groupid FROM unnest($1::text[]) AS asked (user_id)
        JOIN pg_dist_placement ON shardid = get_shard_id_for_distribution_column('users', asked.user_id)
        """)

    /// Decodes the rows of ``nodes``: the node of each user.
    static func nodes(_ rows: Rows) -> [Identifier: Int64] {
        var nodes: [Identifier: Int64] = [:]
        for row in rows { nodes[row.identifier(0)] = row.integer(1) }
        return nodes
    }
}

extension ProfileRecord {
    /// The value of `expires_at` that marks a row without a profile, which may be empty, for the next sweep.
    static let maybeEmpty = Instant.epoch

    /// Returns the value of `expires_at`: the time at which a sweep checks the row for expired assignments; `nil` if no
    /// assignment will expire.
    ///
    /// The value is the first expiry, rounded up by at most a sixteenth of the time until then, and by at most 18
    /// hours. So an assignment that is renewed at each visit seldom changes the index, and PostgreSQL can update the
    /// row in place (HOT). Readers use the exact expiry in the profile.
    func sweptAt(from now: Instant) -> Instant? {
        guard let expiry = earliestExpiry, expiry > now else { return earliestExpiry }
        let bits = Int64.bitWidth - (expiry - now).milliseconds.leadingZeroBitCount
        // The step is a power of two between a 32nd and a 16th of the time, and at most 2^26 milliseconds, which are
        // 18.6 hours.
        let step: Int64 = 1 << min(max(bits - 5, 0), 26)
        let (rounded, isBeyond) = expiry.milliseconds.addingReportingOverflow(
            (step - expiry.milliseconds % step) % step)
        return isBeyond ? expiry : Instant(milliseconds: rounded)
    }
}
