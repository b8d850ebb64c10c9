import Bucketing
import Storage

/// An SQL statement.
struct Statement: Sendable {
    /// The name under which each connection prepares it once.
    let name: String
    private let text: @Sendable () -> String

    /// - Parameter sql: put together only when the statement is prepared, and each time behind a pooler.
    init(_ name: String, _ sql: @autoclosure @escaping @Sendable () -> String) {
        self.name = name
        text = sql
    }

    var sql: String { text() }

    func callAsFunction(_ parameters: SQLValue...) -> SQLQuery { query(parameters) }

    func query(_ parameters: [SQLValue]) -> SQLQuery { SQLQuery(name: name, text: text, parameters) }

    /// The statement with a check that it affects as many rows as its first parameter has elements. Otherwise it fails
    /// with ``PostgreSQLError/versionConflict``, and the transaction with it.
    var guarded: Statement {
        Statement(
            "\(name)_guarded",
            "WITH touched AS (\(sql)) SELECT 1 / (count(*) = cardinality($1))::integer FROM touched")
    }

    static let begin = Statement("begin", "BEGIN ISOLATION LEVEL READ COMMITTED")
    static let beginSnapshot = Statement("begin_snapshot", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    static let commit = Statement("commit", "COMMIT")
    /// Lets the statements of the transaction be planned for their values, where the best plan depends on them, as that of a
    /// subquery with a limit does.
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
    ///   - timeout: how long it may take, and how long the session may be idle, in seconds.
    static func limits(lockTimeout: Double, timeout: Double) -> SQLQuery {
        limits(
            .text("\(PostgreSQLConfiguration.milliseconds(lockTimeout))"),
            .text("\(PostgreSQLConfiguration.milliseconds(timeout))"))
    }
}

extension SQLQuery {
    /// The query, which locks the rows that it reads.
    var locked: SQLQuery {
        SQLQuery("\(name)_locked", "\(sql) FOR UPDATE", parameters)
    }

    /// A statement about the rows that any of some keys finds.
    ///
    /// - Parameters:
    ///   - keys: not empty, and all of the same columns.
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

    /// A statement about all rows of users.
    static func each(
        _ rows: KeyedRows, of users: some Sequence<Identifier>, _ action: KeyedRows.Action = .select
    ) -> SQLQuery {
        each(rows, users.map { [.text($0)] }, action)
    }

    /// Inserts rows, in their order; see ``StoredTable/conflict``.
    static func insert(_ rows: [[SQLValue]], into table: StoredTable) -> SQLQuery {
        let columns = table.insertedColumns.enumerated().map { index, column in
            SQLValue.column(rows.lazy.map { $0[index] }, column.type)
        }
        return (Statement.inserts[table] ?? Statement.insert(into: table)).query(columns)
    }
}

extension Statement {
    fileprivate static let inserts = Dictionary(
        uniqueKeysWithValues: StoredTable.allCases.map { ($0, insert(into: $0)) })

    /// Inserts rows whose columns are given as arrays.
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
    /// - Parameter types: of the arrays with the keys.
    fileprivate func sql(_ action: Action, ofEach types: [String], isDistributed: Bool) -> String {
        // For Citus: it shows which shards are concerned.
        let any = "\(keys[0]) ANY($1)"
        guard types.count > 1 else { return sql(action, where: any) }
        let columns = types.indices.map { "key\($0)" }
        let arrays = types.enumerated().map { "$\($0 + 1)::\($1)" }
        let asked = "unnest(\(arrays.joined(separator: ", "))) AS asked (\(columns.joined(separator: ", ")))"
        let isAsked = condition(columns)
        guard case .select = action else {
            return sql(action, from: "\(table) USING \(asked)", where: "\(isAsked) AND \(any)")
        }
        // A plain join that was planned for a small table would read all rows of the users. Citus plans each time.
        return isDistributed
            ? sql(action, from: "\(asked) JOIN \(table) ON \(isAsked)", where: any)
            : "SELECT found.* FROM \(asked) CROSS JOIN LATERAL (\(sql(action, where: isAsked)) OFFSET 0) AS found"
    }
}

extension StoredTable.ColumnType {
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
    /// The values of one column as an array.
    static func column(_ values: some Collection<SQLValue>, _ type: StoredTable.ColumnType) -> SQLValue {
        switch type {
        case .text: .texts(values.map { if case .text(let text) = $0 { text } else { nil } })
        case .integer, .integer32: .integers(values.map { if case .integer(let number) = $0 { number } else { nil } })
        case .double: .doubles(values.map { if case .double(let number) = $0 { number } else { nil } })
        case .bytes: .blobs(values.map { if case .bytes(let bytes) = $0 { bytes } else { nil } })
        }
    }
}

/// A parameter in PostgreSQL's binary format.
///
/// The formats are those of the `*recv` functions of its types: integers in network byte order, texts in UTF-8; arrays
/// as `array_recv` reads them.
struct Parameter {
    /// The object id of its type, see `pg_type.dat`.
    let type: UInt32
    /// `nil` is NULL.
    let bytes: [UInt8]?

    private static let (bytea, int8, int4, text, float8): (UInt32, UInt32, UInt32, UInt32, UInt32) = (
        17, 20, 23, 25, 701
    )
    private static let (bytea1, int41, text1, int81, float81): (UInt32, UInt32, UInt32, UInt32, UInt32) =
        (1001, 1007, 1009, 1016, 1022)

    init(_ value: SQLValue) {
        switch value {
        case .integer(let number): self.init(Self.int8, number.map { Self.bigEndian(UInt64(bitPattern: $0)) })
        case .double(let number): self.init(Self.float8, Self.bigEndian(number.bitPattern))
        case .text(let text): self.init(Self.text, text.map { Array($0.utf8) })
        case .bytes(let bytes): self.init(Self.bytea, bytes)
        case .integers(let values): self = .integers(values)
        case .doubles(let values): self = .doubles(values)
        case .texts(let values): self = .texts(values)
        case .blobs(let values): self = .blobs(values)
        }
    }

    private init(_ type: UInt32, _ bytes: [UInt8]?) { (self.type, self.bytes) = (type, bytes) }

    private static func texts(_ values: [String?]) -> Parameter {
        array(of: text, as: text1, values) { value, output in
            var value = value
            value.withUTF8 { bytes in
                append(UInt32(truncatingIfNeeded: bytes.count), to: &output)
                output.append(contentsOf: bytes)
            }
        }
    }

    private static func blobs(_ values: [[UInt8]?]) -> Parameter {
        array(of: bytea, as: bytea1, values) { value, output in
            append(UInt32(truncatingIfNeeded: value.count), to: &output)
            output.append(contentsOf: value)
        }
    }

    private static func integers(_ values: [Int64?]) -> Parameter {
        array(of: int8, as: int81, values) { value, output in
            append(UInt32(8), to: &output)
            append(UInt64(bitPattern: value), to: &output)
        }
    }

    private static func doubles(_ values: [Double?]) -> Parameter {
        array(of: float8, as: float81, values) { value, output in
            append(UInt32(8), to: &output)
            append(value.bitPattern, to: &output)
        }
    }

    /// - Parameter encode: appends the length of a value in bytes and the value.
    @inline(__always)
    private static func array<Element>(
        of element: UInt32, as type: UInt32, _ values: [Element?], _ encode: (Element, inout [UInt8]) -> Void
    ) -> Parameter {
        var output: [UInt8] = []
        output.reserveCapacity(20 + 32 * values.count)
        let hasNull: UInt32 = values.contains { $0 == nil } ? 1 : 0
        // An empty array has no dimension.
        guard !values.isEmpty else {
            for word in [0, 0, element] { append(word, to: &output) }
            return Parameter(type, output)
        }
        // One dimension, whose indices begin at 1.
        for word in [1, hasNull, element, UInt32(truncatingIfNeeded: values.count), 1] { append(word, to: &output) }
        for value in values {
            if let value { encode(value, &output) } else { append(UInt32.max, to: &output) }
        }
        return Parameter(type, output)
    }

    @inline(__always)
    private static func append(_ number: some FixedWidthInteger, to output: inout [UInt8]) {
        withUnsafeBytes(of: number.bigEndian) { output.append(contentsOf: $0) }
    }

    private static func bigEndian(_ number: some FixedWidthInteger) -> [UInt8] {
        withUnsafeBytes(of: number.bigEndian) { Array($0) }
    }

    /// Passes the bytes of all parameters without copying each.
    static func withValues(
        _ parameters: [Parameter], _ body: ([UnsafePointer<CChar>?], [Int32]) -> Bool
    ) -> Bool {
        var values: [UnsafePointer<CChar>?] = []
        var lengths: [Int32] = []
        func add(_ rest: ArraySlice<Parameter>) -> Bool {
            guard let parameter = rest.first else { return body(values, lengths) }
            guard let bytes = parameter.bytes else {
                values.append(nil)
                lengths.append(0)
                return add(rest.dropFirst())
            }
            return bytes.withUnsafeBytes { buffer in
                // Not NULL, even if empty.
                values.append((buffer.baseAddress ?? empty).assumingMemoryBound(to: CChar.self))
                lengths.append(Int32(clamping: buffer.count))
                return add(rest.dropFirst())
            }
        }
        return add(parameters[...])
    }

    // Safe: never read or written.
    private nonisolated(unsafe) static let empty = UnsafeRawPointer(
        UnsafeMutableRawPointer.allocate(byteCount: 1, alignment: 1))
}
