import Bucketing
import JSON
import Storage

/// The row of `project_state`.
struct ProjectStateRow {
    var changes: Int64
    var newestDatafile: Int64
    var newestAttribute: Int64

    /// The advisory lock of a transaction that activates a datafile, exclusive, or depends on the newest one, shared.
    private static let lock: Int64 = 4_739_118_002
    private static let columns = "changes, newest_datafile, newest_attribute"

    static let read = Statement("project_state", "SELECT \(columns) FROM project_state")
    static let readIfChanged = Statement(
        "project_state_if_changed", "SELECT \(columns) FROM project_state WHERE changes <> $1")
    static let readLocked = Statement("project_state_locked", "SELECT \(columns) FROM project_state FOR UPDATE")
    static let changed = Statement("project_changed", "UPDATE project_state SET changes = changes + 1")
    /// Where servers listen for changes.
    static let channel = "holdfast_projects"
    /// Notifies all servers when the transaction commits.
    static let notify = Statement("notify_projects", "SELECT pg_notify('\(channel)', '')")
    private static let lockShared = Statement("datafile_lock_shared", "SELECT pg_advisory_xact_lock_shared($1)")
    private static let lockExclusive = Statement("datafile_lock", "SELECT pg_advisory_xact_lock($1)")
    /// Fails with ``PostgreSQLError/versionConflict`` if another datafile is the newest.
    private static let expectNewest = Statement(
        "expect_newest_datafile", "SELECT 1 / (newest_datafile = $1)::integer FROM project_state")
    static let newestDatafile = Statement(
        "newest_datafile", "UPDATE project_state SET changes = changes + 1, newest_datafile = $1")
    static let newestAttribute = Statement(
        "newest_attribute", "UPDATE project_state SET changes = changes + 1, newest_attribute = $1")

    init(_ rows: Rows, _ row: Int) {
        changes = rows.bounded(row, 0)
        newestDatafile = rows.bounded(row, 1)
        newestAttribute = rows.bounded(row, 2)
    }

    /// Fails if a datafile is not the newest one, and keeps others from activating a newer one until the commit. Two
    /// statements, so that the second one sees what was committed before the lock was taken.
    static func expectNewest(_ version: Int64) -> [Query] {
        [lockShared(.integer(lock)), expectNewest(.integer(version))]
    }

    /// Waits for the transactions that depend on the newest datafile.
    static var lockNewest: Query { lockExclusive(.integer(lock)) }
}

/// The `datafiles` table.
enum DatafileRows {
    static let active = Statement(
        "active_datafiles",
        """
        SELECT version, sdk_key, revision, content, stored_at, author FROM datafiles
        WHERE version > $1 AND version IN (SELECT max(version) FROM datafiles GROUP BY sdk_key) ORDER BY version
        """)
    static let history = Statement(
        "datafile_history",
        """
        SELECT version, sdk_key, revision, NULL::bytea, stored_at, author FROM datafiles
        WHERE sdk_key = $1 ORDER BY version DESC LIMIT $2
        """)
    static let find = Statement(
        "datafile_version",
        """
        SELECT version, sdk_key, revision, content, stored_at, author FROM datafiles WHERE version = $1 AND sdk_key = $2
        """)
    static let last = Statement(
        "last_datafile",
        """
        SELECT version, sdk_key, revision, content, stored_at, author FROM datafiles
        WHERE sdk_key = $1 AND author = $2 ORDER BY version DESC LIMIT 1
        """)
    /// The third parameter is the number of datafiles that are kept of a project. Of older ones some were deleted, so
    /// that it is unknown which was active at the time.
    static let activeAt = Statement(
        "datafile_active_at",
        """
        SELECT version, sdk_key, revision, content, stored_at, author FROM datafiles AS found
        WHERE sdk_key = $1 AND stored_at <= $2
            AND (SELECT count(*) FROM datafiles WHERE sdk_key = $1 AND version > found.version) < $3
        ORDER BY version DESC LIMIT 1
        """)
    private static let insert = Statement(
        "insert_datafile",
        """
        INSERT INTO datafiles (version, sdk_key, revision, content, stored_at, author) VALUES ($1, $2, $3, $4, $5, $6)
        """)
    /// Deletes all but the newest datafiles of a project and the newest one of an author.
    static let prune = Statement(
        "prune_datafiles",
        """
        DELETE FROM datafiles WHERE sdk_key = $1
            AND version NOT IN (SELECT version FROM datafiles WHERE sdk_key = $1 ORDER BY version DESC LIMIT $2)
            AND version IS DISTINCT FROM (SELECT max(version) FROM datafiles WHERE sdk_key = $1 AND author = $3)
        """)

    static func insert(_ datafile: StoredDatafile) -> Query {
        insert(
            .integer(datafile.version), .text(datafile.sdkKey), .text(datafile.revision), .bytes(datafile.content),
            .integer(datafile.storedAt), .text(datafile.author))
    }

    static func decode(_ rows: Rows, _ row: Int) -> StoredDatafile {
        StoredDatafile(
            version: rows.bounded(row, 0), sdkKey: rows.text(row, 1), revision: rows.text(row, 2),
            content: rows.bytes(row, 3), storedAt: rows.bounded(row, 4), author: rows.text(row, 5))
    }
}

/// The `projects` table.
enum ProjectRows {
    static let all = Statement(
        "projects", "SELECT sdk_key, name, created_at, is_default FROM projects ORDER BY sdk_key")
    private static let unsetDefault = Statement(
        "unset_default_project", "UPDATE projects SET is_default = 0 WHERE is_default <> 0")
    private static let put = Statement(
        "put_project",
        """
        INSERT INTO projects (sdk_key, name, created_at, is_default) VALUES ($1, $2, $3, ($4::bigint)::integer)
        ON CONFLICT (sdk_key) DO UPDATE SET name = excluded.name, is_default = excluded.is_default
        """)
    private static let delete = Statement("delete_project", "DELETE FROM projects WHERE sdk_key = $1")
    private static let deleteDatafiles = Statement(
        "delete_project_datafiles", "DELETE FROM datafiles WHERE sdk_key = $1")
    private static let deleteForcedVariations = Statement(
        "delete_project_forced_variations", "DELETE FROM forced_variations WHERE sdk_key = $1")

    /// Writes a project. If it is the default, no other is any longer.
    static func put(_ record: ProjectRecord) -> [Query] {
        (record.isDefault ? [unsetDefault()] : []) + [
            put(
                .text(record.sdkKey), .text(record.name), .integer(record.createdAt),
                .integer(record.isDefault ? 1 : 0))
        ]
    }

    /// Deletes a project, its datafiles and forced variations.
    static func delete(sdkKey: String) -> [Query] {
        [deleteDatafiles(.text(sdkKey)), deleteForcedVariations(.text(sdkKey)), delete(.text(sdkKey))]
    }

    static func decode(_ rows: Rows) -> [ProjectRecord] {
        rows.indices.map { row in
            ProjectRecord(
                sdkKey: rows.text(row, 0), name: rows.text(row, 1), createdAt: rows.bounded(row, 2),
                isDefault: rows.integer(row, 3) != 0)
        }
    }
}

/// The `attributes` table.
enum AttributeSchemaRows {
    static let all = Statement("attribute_schema", "SELECT number, name, definition FROM attributes")
    static let numbers = Statement("attribute_numbers", "SELECT number FROM attributes")
    static let find = Statement("find_attribute", "SELECT number, name, definition FROM attributes WHERE name = $1")
    static let insert = Statement(
        "insert_attribute", "INSERT INTO attributes (number, name, definition) VALUES ($1, $2, $3)")
    static let update = Statement("update_attribute", "UPDATE attributes SET definition = $2 WHERE number = $1")
    static let delete = Statement("delete_attribute", "DELETE FROM attributes WHERE number = $1")
    static let insertRemoval = Statement(
        "insert_attribute_removal", "INSERT INTO attribute_removals (number, after_user_id) VALUES ($1, '')")
    static let removals = Statement(
        "attribute_removals", "SELECT number, after_user_id FROM attribute_removals ORDER BY number LIMIT 1")
    static let advanceRemoval = Statement(
        "advance_attribute_removal",
        "UPDATE attribute_removals SET after_user_id = $2 WHERE number = $1 AND after_user_id < $2")
    static let endRemoval = Statement("end_attribute_removal", "DELETE FROM attribute_removals WHERE number = $1")

    static func encoded(_ definition: AttributeDefinition) -> Parameter {
        .text(String(decoding: definition.document.encoded(), as: UTF8.self))
    }

    /// - Returns: `nil` for a definition of a newer release, which is skipped as if it did not exist.
    static func decode(_ rows: Rows, _ row: Int) -> AttributeDefinition? {
        guard row < rows.count, let document = try? JSONParser().parse(rows.text(row, 2)),
            let number = UInt32(exactly: rows.integer(row, 0))
        else { return nil }
        return AttributeDefinition(name: rows.identifier(row, 1), number: number, document: document)
    }
}

/// The `segments` table.
enum SegmentRows {
    static let all = Statement("segments", "SELECT name, conditions FROM segments")
    static let find = Statement("find_segment", "SELECT name, conditions FROM segments WHERE name = $1")
    private static let put = Statement(
        "put_segment",
        """
        INSERT INTO segments (name, conditions) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE SET conditions = excluded.conditions
        """)
    static let delete = Statement("delete_segment", "DELETE FROM segments WHERE name = $1")

    static func put(_ segment: Segment) -> Query {
        put(.text(segment.name.string), .text(segment.storedConditions))
    }

    static func decodeConditions(_ rows: Rows, _ row: Int) -> JSONValue? {
        guard row < rows.count else { return nil }
        return Segment.conditions(stored: rows.text(row, 1))
    }
}

/// The `audit` table.
enum AuditRows {
    private static let insertAll = Statement(
        "insert_audit",
        """
        INSERT INTO audit (recorded_at, author, request_id, action, user_id, target, before, after)
        SELECT recorded_at, author, request_id, action, user_id, target, before, after
        FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
            WITH ORDINALITY AS new (recorded_at, author, request_id, action, user_id, target, before, after, place)
        ORDER BY place
        """)
    private static let find = Statement(
        "find_audit",
        """
        SELECT id, recorded_at, author, request_id, action, user_id, target, before, after FROM audit
        WHERE ($1::text IS NULL OR author = $1) AND ($2::text IS NULL OR action = $2)
            AND ($3::text IS NULL OR user_id = $3) AND ($4::text IS NULL OR target = $4)
            AND ($5::bigint IS NULL OR recorded_at >= $5) AND ($6::bigint IS NULL OR recorded_at < $6)
            AND ($7::bigint IS NULL OR id < $7)
        ORDER BY id DESC LIMIT $8
        """)
    /// Removes what identifies erased users, see ``AuditEntry/anonymize()``.
    static let anonymize = Statement(
        "anonymize_audit", "UPDATE audit SET user_id = NULL, before = NULL, after = NULL WHERE user_id = ANY($1)")
    static let counts = Statement(
        "audit_counts", "SELECT user_id, count(*), max(id) FROM audit WHERE user_id = ANY($1) GROUP BY user_id")
    static let move = Statement("move_audit", "UPDATE audit SET user_id = $2 WHERE user_id = $1")
    static let prune = Statement(
        "prune_audit",
        """
        DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE recorded_at < $1 ORDER BY recorded_at LIMIT $2)
        RETURNING id
        """)

    static func insert(_ entries: [AuditEntry]) -> Query {
        insertAll(
            .integers(entries.map(\.recordedAt)), .texts(entries.map(\.author.name)),
            .texts(entries.map(\.author.requestID)), .texts(entries.map(\.action)),
            .texts(entries.map { $0.userID?.string }), .texts(entries.map(\.target)),
            .texts(entries.map { $0.before.map { String(decoding: $0, as: UTF8.self) } }),
            .texts(entries.map { $0.after.map { String(decoding: $0, as: UTF8.self) } }))
    }

    static func find(_ query: AuditQuery) -> Query {
        find(
            .text(query.author), .text(query.action?.rawValue), .text(query.userID?.string), .text(query.target),
            .integer(query.since), .integer(query.until), .integer(query.after), .integer(query.limit))
    }

    static func decode(_ rows: Rows, _ row: Int) -> AuditEntry {
        AuditEntry(
            id: rows.integer(row, 0), recordedAt: rows.integer(row, 1),
            author: Author(name: rows.text(row, 2), requestID: rows.text(row, 3)), action: rows.text(row, 4),
            userID: rows.optionalText(row, 5).map { Identifier($0) }, target: rows.text(row, 6),
            before: rows.optionalText(row, 7).map { Array($0.utf8) },
            after: rows.optionalText(row, 8).map { Array($0.utf8) })
    }
}

/// The `erasures` table: users who were erased recently. Another server may have received events of a user before the
/// erasure that still wait to be written; they must not restore the user. The server that erased the user keeps the
/// order by itself. Ages are compared instead of times, because the clocks of hosts differ.
enum ErasureRows {
    /// Selects the seconds since users were erased by other servers.
    static let ages = Statement(
        "erasure_ages",
        """
        SELECT user_hash, extract(epoch FROM clock_timestamp() - erased_at)::float8 FROM erasures
        WHERE user_hash = ANY($1) AND eraser <> $2
        """)
    static let insert = Statement(
        "insert_erasures",
        """
        INSERT INTO erasures (user_hash, eraser, erased_at)
        SELECT user_hash, $2, clock_timestamp() FROM unnest($1::bigint[]) AS user_hash
        ON CONFLICT (user_hash) DO UPDATE SET eraser = excluded.eraser, erased_at = excluded.erased_at
        """)
    /// Selects removals after a time, in microseconds, and those of some seconds before it: their transactions may have
    /// been committed later.
    static let after = Statement(
        "erasures_after",
        """
        SELECT user_hash, (extract(epoch FROM erased_at) * 1000000)::bigint FROM erasures
        WHERE erased_at > to_timestamp($1::bigint / 1000000.0::float8) - make_interval(secs => $2)
        """)
    static let prune = Statement(
        "prune_erasures", "DELETE FROM erasures WHERE erased_at < clock_timestamp() - make_interval(secs => $1)")
}
