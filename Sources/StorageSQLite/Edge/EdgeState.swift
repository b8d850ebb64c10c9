package import Bucketing
package import Chronology
import Glibc
package import Storage

/// How far the file of an edge follows its upstream: the row of the table `edge_state`.
///
/// Only an edge's file has this table, so that a server can refuse the wrong kind of file. Without the check, a server
/// that is not an edge would write changes into a copy, where they are lost, and an edge would delete the data of an
/// independent database.
package struct EdgeState: Sendable, Equatable {
    /// The place in the upstream's feed up to which the file has all changes; `nil` before the first copy has begun.
    package var cursor: FeedCursor?
    /// While all users are being copied, the last one copied so far, empty before the first; `nil` at other times. The
    /// copy began at ``cursor``.
    package var copiedTo: Identifier?
    /// Whether the file was up to date with its upstream at some time.
    package var isComplete = false
    /// The ``ProjectState/changes`` of the upstream that the file has; -1 for none.
    package var definitions: Int64 = -1
    /// The ``ProjectState/newestDatafile`` of the upstream that the file has.
    package var newestDatafile: Int64 = 0
    /// Whether the file has datafiles in parts where the upstream has: an edge of an earlier release copied all of them
    /// whole.
    package var hasParts = false
    /// The ``StoreGeneration/storeID`` of the upstream; 0 if it is not known yet.
    package var upstreamID: Int64 = 0
    /// How far the upstream's time is ahead of this host's clock, as it was measured last.
    package var clockOffset = TimeSpan.zero

    package init() {}

    /// A row of the table.
    init(_ row: Statement) {
        cursor = FeedCursor(row.text(0))
        copiedTo = row.optionalIdentifier(1)
        isComplete = row.integer(2) != 0
        definitions = row.integer(3)
        newestDatafile = row.integer(4)
        upstreamID = row.integer(5)
        clockOffset = .milliseconds(row.integer(6))
        hasParts = row.integer(7) != 0
    }

    /// Whether the edge must read all definitions from the upstream again.
    package var needsAllDefinitions: Bool { definitions < 0 || !hasParts }

    /// Whether the file has the definitions that it had in another state.
    package func hasDefinitions(of other: EdgeState) -> Bool {
        definitions == other.definitions && newestDatafile == other.newestDatafile && hasParts == other.hasParts
    }

    private static let creation = """
        CREATE TABLE IF NOT EXISTS edge_state (
            id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
            cursor TEXT NOT NULL, copied_to TEXT, is_complete INTEGER NOT NULL, definitions INTEGER NOT NULL,
            newest_datafile INTEGER NOT NULL, upstream_id INTEGER NOT NULL DEFAULT 0,
            clock_offset INTEGER NOT NULL DEFAULT 0, has_parts INTEGER NOT NULL DEFAULT 0
        ) STRICT;
        INSERT OR IGNORE INTO edge_state (id, cursor, copied_to, is_complete, definitions, newest_datafile)
        VALUES (1, '', NULL, 0, -1, 0);
        """

    /// Creates the table, or adds the columns that earlier releases did not have.
    static func create(_ connection: Connection) throws(SQLiteError) {
        try connection.execute(creation)
        for name in ["upstream_id", "clock_offset", "has_parts"] {
            var isPresent = false
            try connection.prepare("SELECT 1 FROM pragma_table_info('edge_state') WHERE name = '\(name)'").run(
                row: { _ in isPresent = true })
            if isPresent { continue }
            try connection.execute("ALTER TABLE edge_state ADD COLUMN \(name) INTEGER NOT NULL DEFAULT 0")
        }
    }

    static func isPresent(_ connection: Connection) throws(SQLiteError) -> Bool {
        try connection.integer("SELECT count(*) FROM sqlite_schema WHERE name = 'edge_state'") > 0
    }

    static func read(_ connection: Connection) throws(SQLiteError) -> EdgeState {
        var state = EdgeState()
        try connection.statement(
            """
            SELECT cursor, copied_to, is_complete, definitions, newest_datafile, upstream_id, clock_offset, has_parts
            FROM edge_state
            """
        ).run(row: { state = EdgeState($0) })
        return state
    }

    func write(_ connection: Connection) throws(SQLiteError) {
        try connection.change(
            """
            UPDATE edge_state SET cursor = ?1, copied_to = ?2, is_complete = ?3, definitions = ?4, newest_datafile = ?5,
                upstream_id = ?6, clock_offset = ?7, has_parts = ?8
            """, .text(cursor?.text ?? ""), .text(copiedTo), .integer(isComplete ? 1 : 0), .integer(definitions),
            .integer(newestDatafile), .integer(upstreamID), .integer(clockOffset.milliseconds),
            .integer(hasParts ? 1 : 0))
    }

    /// Checks that a file is of the right kind. Creates the table in a new file of an edge.
    ///
    /// - Parameter isEdge: whether the file must be the copy of an upstream.
    /// - Throws: ``DatabaseError`` if the file is of the other kind.
    static func expect(_ isEdge: Bool, path: String) throws(DatabaseError) {
        let isPresent: Bool
        let isEmpty: Bool
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .write, lockTimeout: 10)
            connection.setCheckpointOnClose(false)
            isPresent = try Self.isPresent(connection)
            isEmpty = try connection.integer("SELECT commits FROM counters") == 0
            if isEdge, isPresent || isEmpty { return try create(connection) }
        } catch {
            throw DatabaseError(path, error)
        }
        if isEdge {
            throw DatabaseError(
                path, "with --upstream it must be new, or the copy of an edge; it is a database of its own",
                isPermanent: true)
        }
        guard isPresent else { return }
        throw DatabaseError(
            path, "it must be an independent database; it is an edge's copy of another: serve it with --upstream URL",
            isPermanent: true)
    }
}

extension EdgeState {
    /// Reads the state of a file. Returns the initial state if the file does not exist, or is not an edge's.
    package static func stored(in path: String) throws(DatabaseError) -> EdgeState {
        guard access(path, F_OK) == 0 else { return EdgeState() }
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .write, lockTimeout: 10)
            connection.setCheckpointOnClose(false)
            guard try isPresent(connection) else { return EdgeState() }
            try create(connection)
            return try read(connection)
        } catch {
            throw DatabaseError(path, error)
        }
    }

    /// Gives a damaged file another name, so that the edge copies everything into a new one.
    ///
    /// - Returns: the damage and the new name; `nil` if the file is sound or does not exist.
    package static func setAsideDamaged(_ path: String) throws(DatabaseError) -> (reason: String, name: String)? {
        guard access(path, F_OK) == 0, let reason = damage(path) else { return nil }
        var number = 1
        while access("\(path).damaged-\(number)", F_OK) == 0 { number += 1 }
        let name = "\(path).damaged-\(number)"
        guard rename(path, name) == 0 else {
            throw DatabaseError(path, "it is damaged, and cannot be renamed: \(String(cString: strerror(errno)))")
        }
        _ = rename(path + "-wal", name + "-wal")
        unlink(path + "-shm")
        return (reason, name)
    }

    /// Returns how a file is damaged; `nil` if it is sound, or cannot be checked.
    private static func damage(_ path: String) -> String? {
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .write, lockTimeout: 10)
            connection.setCheckpointOnClose(false)
            // Unlike integrity_check, it does not compare indexes with tables, so it takes one pass over the file.
            let problems = try connection.all("PRAGMA quick_check(1)") { $0.text(0) }
            return problems == ["ok"] ? nil : problems.joined(separator: "; ")
        } catch {
            return error.isDamage ? "\(error)" : nil
        }
    }
}
