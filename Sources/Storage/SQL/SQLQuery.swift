package import Bucketing
package import Chronology

// The types that describe reads and writes for all databases: a statement (``SQLQuery``), a row of its result
// (``Row``), and a read of one or more statements (``Reading``). SQLite and PostgreSQL share most statements. If the
// SQL of a statement must differ, the code switches over ``SQLDialect``.

/// A parameter of a statement. An associated value `nil` stands for NULL.
package enum SQLValue: Sendable {
    case integer(Int64?)
    case double(Double)
    case text(String?)
    case bytes([UInt8]?)
    // Arrays, for statements about many rows. Only PostgreSQL has them.
    case integers([Int64?])
    case doubles([Double?])
    case texts([String?])
    case blobs([[UInt8]?])

    package static func instant(_ time: Instant?) -> SQLValue { .integer(time?.milliseconds) }
    package static func instants(_ times: [Instant?]) -> SQLValue { .integers(times.map { $0?.milliseconds }) }
}

/// The kind of database, for statements whose SQL differs.
package enum SQLDialect: Sendable {
    case sqlite
    case postgreSQL
}

/// A statement with its parameters.
package struct SQLQuery: Sendable {
    /// The name under which each connection prepares the statement once. Statements with the same name must have the
    /// same SQL.
    package let name: String
    package let parameters: [SQLValue]
    private let text: @Sendable () -> String

    /// - Parameter sql: evaluated only when the statement is prepared.
    package init(
        _ name: String, _ sql: @autoclosure @escaping @Sendable () -> String, _ parameters: SQLValue...
    ) {
        self.init(name, sql(), parameters)
    }

    package init(
        _ name: String, _ sql: @autoclosure @escaping @Sendable () -> String, _ parameters: [SQLValue]
    ) {
        self.name = name
        self.parameters = parameters
        text = sql
    }

    /// - Parameter text: returns the SQL; called only when the statement is prepared.
    package init(name: String, text: @escaping @Sendable () -> String, _ parameters: [SQLValue]) {
        self.name = name
        self.text = text
        self.parameters = parameters
    }

    /// The SQL text, which refers to the parameters as `$1`, `$2`…
    package var sql: String { text() }
}

/// A row of the result of a statement. Columns are counted from 0. The content is not trusted: a value with an
/// unexpected format reads as zero or empty.
package protocol Row {
    func isNull(_ column: Int32) -> Bool
    func integer(_ column: Int32) -> Int64
    /// Returns an integer, limited to a range in which additions do not overflow. For counts and versions, with which
    /// the program computes even if the database is damaged.
    func bounded(_ column: Int32) -> Int64
    func double(_ column: Int32) -> Double
    func text(_ column: Int32) -> String
    /// Returns the bytes of a text or a blob.
    func bytes(_ column: Int32) -> [UInt8]
    /// Calls a function with the bytes of a column, without copying them.
    func withBytes<Value>(_ column: Int32, _ body: (UnsafeRawBufferPointer) -> Value) -> Value
}

extension Row {
    package func identifier(_ column: Int32) -> Identifier { Identifier(text(column)) }

    package func instant(_ column: Int32) -> Instant { Instant(milliseconds: integer(column)) }

    /// Returns the bytes of a column; `nil` for NULL.
    package func optionalBytes(_ column: Int32) -> [UInt8]? { isNull(column) ? nil : bytes(column) }

    /// Returns the text of a column; `nil` for NULL.
    package func optionalText(_ column: Int32) -> String? { isNull(column) ? nil : text(column) }

    package func optionalIdentifier(_ column: Int32) -> Identifier? { optionalText(column).map { Identifier($0) } }
}

/// The execution of a ``StoreQuery`` by a database: statements that share one snapshot, functions that receive the rows
/// of the statements, and a function that computes the result from the rows. A reading keeps state, so it can be
/// executed only once.
package struct Reading<Value> {
    /// The outcome of the statements.
    package enum Outcome {
        case value(Value)
        /// Another reading must follow, in a later snapshot.
        case more(Reading)
    }

    /// A statement, and a function that receives each of its rows.
    package typealias Step = (query: SQLQuery, take: (any Row) -> Void)

    package let steps: [Step]
    /// Whether the best plan of the statements depends on their parameters, so that the database should not reuse a
    /// plan for other parameters.
    package var dependsOnValues = false
    /// Returns the outcome. Called after all rows have been received.
    package let finish: () throws(StorageError) -> Outcome

    package init(_ steps: [Step], _ finish: @escaping () throws(StorageError) -> Outcome) {
        self.steps = steps
        self.finish = finish
    }

    /// Reads all rows of one statement.
    ///
    /// - Parameter decode: returns `nil` for a row that is skipped.
    package static func all<Element>(
        _ query: SQLQuery, _ decode: @escaping (any Row) -> Element?
    ) -> Reading where Value == [Element] {
        var found: [Element] = []
        return Reading([(query, { row in if let element = decode(row) { found.append(element) } })]) { .value(found) }
    }

    /// Reads the only row of one statement; `nil` if there is none.
    package static func first<Element>(
        _ query: SQLQuery, _ decode: @escaping (any Row) -> Element
    ) -> Reading where Value == Element? {
        var found: Element?
        return Reading([(query, { found = decode($0) })]) { .value(found) }
    }
}

/// The properties of the store on which a reading depends, in addition to its query.
package struct ReadingContext: Sendable {
    package let dialect: SQLDialect
    package let clock: StoreClock
    /// See ``StoreSettings/datafileHistory``.
    package let datafileHistory: Int
    /// The number of rows that one step of a scan reads.
    package let scanRows: Int
    /// The maximum duration of a transaction in seconds; 0 if the database runs one writing transaction at a time.
    package let longestTransaction: Double

    package init(
        _ dialect: SQLDialect, _ settings: StoreSettings, _ clock: StoreClock, scanRows: Int,
        longestTransaction: Double = 0
    ) {
        self.dialect = dialect
        self.clock = clock
        datafileHistory = max(1, settings.datafileHistory)
        self.scanRows = scanRows
        self.longestTransaction = longestTransaction
    }
}
