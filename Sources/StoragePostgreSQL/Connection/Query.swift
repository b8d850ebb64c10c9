import Bucketing
import Storage

/// An SQL statement of this store with parameters (`$1`). Calling the statement with values returns a query.
struct Statement: Sendable {
    /// The name under which each connection prepares it once.
    let name: String
    private let text: @Sendable () -> String

    /// - Parameter sql: evaluated only when the statement is prepared, and for each query behind a pooler.
    init(_ name: String, _ sql: @autoclosure @escaping @Sendable () -> String) {
        self.name = name
        text = sql
    }

    /// The text of the statement.
    var sql: String { text() }

    func callAsFunction(_ parameters: SQLValue...) -> SQLQuery { query(parameters) }

    func query(_ parameters: [SQLValue]) -> SQLQuery { SQLQuery(name: name, text: text, parameters) }

    /// The statement with a check that it affects as many rows as its first parameter has elements. If the numbers
    /// differ, the statement and its transaction fail with ``PostgreSQLError/versionConflict``.
    var guarded: Statement {
        Statement(
            "\(name)_guarded",
            "WITH touched AS (\(sql)) SELECT 1 / (count(*) = cardinality($1))::integer FROM touched")
    }

    static let begin = Statement("begin", "BEGIN ISOLATION LEVEL READ COMMITTED")
    static let beginSnapshot = Statement("begin_snapshot", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    static let commit = Statement("commit", "COMMIT")
    /// Makes PostgreSQL plan the statements of the transaction for their values. Needed where the best plan depends on
    /// the values, as it does for a subquery with a limit.
    static let planForValues = Statement("plan_for_values", "SET LOCAL plan_cache_mode = force_custom_plan")
    static let rollback = Statement("rollback", "ROLLBACK")
    /// Makes the commit of a transaction that writes nothing wait for a synchronous standby.
    static let awaitStandby = Statement("await_standby", "SELECT pg_logical_emit_message(true, 'holdfast', '')")
    private static let limits = Statement(
        "limits",
        """
        SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),
            set_config('idle_in_transaction_session_timeout', $2, true)
        """)

    /// Limits the rest of the transaction. Sessions behind a pooler have no limits of their own.
    ///
    /// - Parameters:
    ///   - lockTimeout: how long a statement may wait for a lock, in seconds.
    ///   - timeout: how long a statement may take, and how long the session may be idle, in seconds.
    static func limits(lockTimeout: Double, timeout: Double) -> SQLQuery {
        limits(
            .text("\(PostgreSQLConfiguration.milliseconds(lockTimeout))"),
            .text("\(PostgreSQLConfiguration.milliseconds(timeout))"))
    }
}

extension SQLQuery {
    /// The query with a lock on the rows that it reads.
    var locked: SQLQuery {
        SQLQuery("\(name)_locked", "\(sql) FOR UPDATE", parameters)
    }

    /// Returns a statement about all rows that have one of the keys.
    ///
    /// - Parameters:
    ///   - keys: the values of the key columns of each row; at least one key.
    ///   - isDistributed: whether the table may be distributed by the first key.
    static func each(
        _ rows: KeyedRows, _ keys: [[SQLValue]], _ action: KeyedRows.Action = .select, isDistributed: Bool = false
    ) -> SQLQuery {
        let types = keys[0].map { value -> StoredTable.ColumnType in
            if case .integer = value { .integer } else { .text }
        }
        return SQLQuery(
            "each_\(rows.name(action, keys: types.count))",
            rows.sql(action, ofEach: types.map(\.array), isDistributed: isDistributed),
            types.enumerated().map { index, type in SQLValue.column(keys.lazy.map { $0[index] }, type) })
    }

    /// Returns a statement about all rows of some users.
    static func each(
        _ rows: KeyedRows, of users: some Sequence<Identifier>, _ action: KeyedRows.Action = .select
    ) -> SQLQuery {
        each(rows, users.map { [.text($0)] }, action)
    }

    /// Returns a statement that inserts rows, in their order; see ``StoredTable/conflict``.
    static func insert(_ rows: [[SQLValue]], into table: StoredTable) -> SQLQuery {
        let columns = table.insertedColumns.enumerated().map { index, column in
            SQLValue.column(rows.lazy.map { $0[index] }, column.type)
        }
        return (Statement.inserts[table] ?? Statement.insert(into: table)).query(columns)
    }
}

extension Statement {
    /// The statements that ``insert(into:)`` makes, made once.
    fileprivate static let inserts = Dictionary(
        uniqueKeysWithValues: StoredTable.allCases.map { ($0, insert(into: $0)) })

    /// Returns a statement that inserts rows whose columns are given as arrays.
    fileprivate static func insert(into table: StoredTable) -> Statement {
        let columns = table.insertedColumns
        let names = columns.map(\.name).joined(separator: ", ")
        let arrays = columns.enumerated().map { "$\($0 + 1)::\($1.type.array)" }.joined(separator: ", ")
        // Events have one sequence; see ``TransactionEffects``.
        let isNumbered = table == .exposures || table == .goalEvents
        var sql = """
            INSERT INTO \(table.rawValue) (\(names)\(isNumbered ? ", number" : ""))
            SELECT \(names)\(isNumbered ? ", nextval('event_numbers')" : "")
            FROM unnest(\(arrays)) WITH ORDINALITY AS new (\(names), place) ORDER BY place
            """
        let key = table.keyNames.joined(separator: ", ")
        switch table.conflict {
        case .fails: break
        case .keepsRow: sql += " ON CONFLICT (\(key)) DO NOTHING"
        case .replacesRow:
            let values = table.columnNames.dropFirst(table.keyCount).map { "\($0) = excluded.\($0)" }
            sql += " ON CONFLICT (\(key)) DO UPDATE SET \(values.joined(separator: ", "))"
        }
        let text = sql
        return Statement("insert_\(table)", text)
    }
}

extension KeyedRows {
    /// Returns the SQL of a statement about all rows that have one of the keys. Each parameter is an array with one
    /// column of the keys.
    ///
    /// - Parameter types: the types of the arrays.
    fileprivate func sql(_ action: Action, ofEach types: [String], isDistributed: Bool) -> String {
        // The condition on the first key shows Citus which shards are concerned.
        let any = "\(keys[0]) ANY($1)"
        guard types.count > 1 else { return sql(action, where: any) }
        let columns = types.indices.map { "key\($0)" }
        let arrays = types.enumerated().map { "$\($0 + 1)::\($1)" }
        let asked = "unnest(\(arrays.joined(separator: ", "))) AS asked (\(columns.joined(separator: ", ")))"
        let isAsked = condition(columns)
        guard case .select = action else {
            return sql(action, from: "\(table) USING \(asked)", where: "\(isAsked) AND \(any)")
        }
        // A plain join that was planned for a small table would read all rows of the users. Citus plans at each
        // execution, so with Citus the plain join is good enough.
        return isDistributed
            ? sql(action, from: "\(asked) JOIN \(table) ON \(isAsked)", where: any)
            : "SELECT found.* FROM \(asked) CROSS JOIN LATERAL (\(sql(action, where: isAsked)) OFFSET 0) AS found"
    }
}

extension StoredTable.ColumnType {
    /// The type of an array of values of the column.
    fileprivate var array: String {
        switch self {
        case .text: "text[]"
        case .integer, .integer32: "bigint[]"
        case .double: "float8[]"
        case .bytes: "bytea[]"
        }
    }
}

extension SQLValue {
    /// Returns the values of one column as an array.
    static func column(_ values: some Collection<SQLValue>, _ type: StoredTable.ColumnType) -> SQLValue {
        switch type {
        case .text: .texts(values.map { if case .text(let text) = $0 { text } else { nil } })
        case .integer, .integer32: .integers(values.map { if case .integer(let number) = $0 { number } else { nil } })
        case .double: .doubles(values.map { if case .double(let number) = $0 { number } else { nil } })
        case .bytes: .blobs(values.map { if case .bytes(let bytes) = $0 { bytes } else { nil } })
        }
    }
}
