package import Bucketing
package import Chronology
import Glibc
package import Storage

/// How far an edge's copy follows its upstream: the row of the table `edge_state`.
///
/// Only a copy has this table, so the table also tells a copy from an independent database. A server refuses the wrong
/// kind of file (``expect(_:path:)``): a server that is not an edge would write changes into a copy, where they are
/// lost, and an edge would delete the data of an independent database.
package struct EdgeState: Sendable, Equatable {
    /// The position in the upstream's feed up to which the file has all changes; `nil` if the file follows no feed.
    /// While all users are being copied, the position at which the copy began.
    package var cursor: FeedCursor?
    /// While all users are being copied, the last user copied so far, empty before the first; `nil` at other times.
    package var copiedTo: Identifier?
    /// Whether the file was up to date with its upstream at some time.
    package var isComplete = false
    /// The version of the upstream's definitions in the file, by ``ProjectState/changes``; -1 for none.
    package var definitions: Int64 = -1
    /// The ``ProjectState/newestDatafile`` of the upstream's definitions in the file.
    package var newestDatafile: Int64 = 0
    /// Whether datafiles that the upstream stores in parts are stored in parts in the file, too. Edges of earlier
    /// releases stored all datafiles whole.
    package var hasParts = false
    /// The ``StoreGeneration/storeID`` of the upstream; 0 if it is not known yet.
    package var upstreamID: Int64 = 0
    /// How far the upstream's time was ahead of this host's clock when it was last measured.
    package var clockOffset = TimeSpan.zero

    package init() {}

    /// Decodes the row of the table.
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

    /// Whether both states have the same definitions.
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

    /// Whether the file has the table, so that it is a copy.
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

    /// Checks that a file is a copy or an independent database. Creates the table in a new file of an edge.
    ///
    /// - Parameter isEdge: whether the file must be a copy; otherwise it must be an independent database.
    /// - Throws: ``DatabaseError`` if the file is of the other kind, or cannot be read.
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
    /// Reads the state of a file. Returns the initial state if the file does not exist, or is not a copy.
    ///
    /// - Throws: ``DatabaseError`` if the file cannot be read.
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

    /// Gives a damaged copy another name, so that the edge copies all users and definitions into a new file.
    ///
    /// - Returns: the damage and the new name; `nil` if the file is sound or does not exist.
    /// - Throws: ``DatabaseError`` if a damaged file cannot be renamed.
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

    /// Describes the damage of a file; `nil` if the file is sound, or cannot be checked.
    private static func damage(_ path: String) -> String? {
        do throws(SQLiteError) {
            let connection = try Connection(path: path, access: .write, lockTimeout: 10)
            connection.setCheckpointOnClose(false)
            // Unlike integrity_check, quick_check does not compare indexes with tables, so it takes one pass.
            let problems = try connection.all("PRAGMA quick_check(1)") { $0.text(0) }
            return problems == ["ok"] ? nil : problems.joined(separator: "; ")
        } catch {
            return error.isDamage ? "\(error)" : nil
        }
    }
}
