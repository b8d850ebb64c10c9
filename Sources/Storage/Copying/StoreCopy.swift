/// A database whose content can be read table by table. Only one thread may use it.
public protocol CopySource: AnyObject {
    /// Identifies the database in messages, without secrets.
    var name: String { get }

    /// Reads a page of rows in the order of their keys.
    ///
    /// - Parameters:
    ///   - row: the last row of the preceding page; `nil` to read from the beginning. Only rows with greater keys are
    ///     read.
    ///   - limit: the approximate number of rows to read.
    /// - Returns: an empty array if no rows follow, and only then.
    /// - Throws: an error of the database.
    func rows(of table: StoredTable, after row: CopiedRow?, limit: Int) throws -> [CopiedRow]

    /// Reads the last numbers that the database has assigned.
    func counters() throws -> CopiedCounters
}

/// A database that becomes the copy of another.
public protocol CopyTarget: CopySource {
    /// Reads the mark of a database that is the target of a copy; `nil` for any other database. The first server that
    /// uses a complete copy removes the mark.
    func mark() throws -> CopyMark?

    /// Marks the database as an incomplete copy, so that no server uses it.
    ///
    /// - Parameter isFirst: whether there is no mark yet, and the database is empty.
    func begin(copyOf source: String, isFirst: Bool) throws

    /// Deletes the rows with the keys of `old`, and then inserts `new`, in one transaction. A key may be in both lists.
    func replace(_ old: [CopiedRow], with new: [CopiedRow], in table: StoredTable) throws

    /// Marks the copy as complete. A later copy of the same source may still update it, until a server uses the
    /// database.
    func finish(_ counters: CopiedCounters) throws
}

/// The mark of a database that is the target of a copy.
public struct CopyMark: Sendable {
    /// The ``CopySource/name`` of the source.
    public let source: String
    /// Whether ``CopyTarget/finish(_:)`` was called, so that a server may use the database.
    public let isComplete: Bool

    package init(source: String, isComplete: Bool) {
        self.source = source
        self.isComplete = isComplete
    }

    /// Why no server may use the database; `nil` if it may.
    package var refusal: String? {
        isComplete
            ? nil : "it must be complete; a copy of \(source) into it is not: run 'holdfast copy' once more"
    }
}

/// Why a database cannot be copied.
public struct CopyError: Error, Sendable, CustomStringConvertible {
    public let description: String

    public init(_ description: String) {
        self.description = description
    }
}

/// Copies one database to another, for example from SQLite to PostgreSQL.
///
/// Both databases are read in the order of keys, as in a merge of two sorted lists, and the differences are written to
/// the target. An interrupted copy therefore continues where it stopped, and an outdated copy is updated. At the end
/// both databases are read again and their checksums compared.
public struct StoreCopy {
    /// The checksums of a table in both databases, computed after the rows were copied.
    public struct Comparison: Sendable {
        public let table: StoredTable
        public let source: TableChecksum
        public let target: TableChecksum

        public var isEqual: Bool { source == target }
    }

    /// The two passes over all tables.
    public enum Phase: Sendable {
        case copying
        case comparing
    }

    /// Reports how many rows of the source have been read in a phase.
    public typealias Progress = (_ phase: Phase, _ table: StoredTable, _ rows: Int) -> Void

    private let source: any CopySource
    private let target: any CopyTarget
    private let progress: Progress

    public init(from source: any CopySource, to target: any CopyTarget, progress: @escaping Progress = { _, _, _ in }) {
        self.source = source
        self.target = target
        self.progress = progress
    }

    /// Copies all tables, compares the two databases, and completes the copy if all tables are equal.
    ///
    /// - Returns: the number of rows written or deleted, and the comparison of all tables.
    /// - Throws: ``CopyError`` if the target holds other data, or an error of either database. The copy is then
    ///   incomplete and may be run again.
    public func run() throws -> (written: Int, comparisons: [Comparison]) {
        try begin()
        var written = 0
        for table in StoredTable.allCases { written += try copy(table) }
        let comparisons = try StoredTable.allCases.map { table in
            let found = try checksum(table, of: source) { progress(.comparing, table, $0) }
            return Comparison(table: table, source: found, target: try checksum(table, of: target) { _ in })
        }
        if comparisons.allSatisfy(\.isEqual) { try target.finish(try source.counters()) }
        return (written, comparisons)
    }

    /// Marks the target as an incomplete copy.
    ///
    /// - Throws: ``CopyError`` if the target holds anything but an earlier, perhaps incomplete copy of the same source.
    private func begin() throws {
        if let mark = try target.mark() {
            guard mark.source == source.name else {
                throw CopyError("\(target.name) must be empty; it holds a copy of \(mark.source)")
            }
            return try target.begin(copyOf: source.name, isFirst: false)
        }
        for table in StoredTable.allCases where try !target.rows(of: table, after: nil, limit: 1).isEmpty {
            throw CopyError(
                """
                \(target.name) must be empty, or hold a copy that no server has used yet; it has rows of \
                \(table.rawValue)
                """)
        }
        try target.begin(copyOf: source.name, isFirst: true)
    }

    /// Makes one table of the target equal to the table of the source.
    ///
    /// - Returns: the number of rows written or deleted.
    private func copy(_ table: StoredTable) throws -> Int {
        var sourceRows = Cursor(source, table)
        var targetRows = Cursor(target, table)
        var differences = Differences()
        var written = 0
        var reported = 0
        // A written row comes before the target's next row, which has been read already. The cursor of the target
        // therefore never reads rows that this copy has written.
        while true {
            let wanted = try sourceRows.row()
            let found = try targetRows.row()
            guard wanted != nil || found != nil else { break }
            let order = Self.order(wanted, found, in: table)
            if wanted != found {
                if order >= 0, let found { differences.old.append(found) }
                if order <= 0, let wanted { differences.new.append(wanted) }
            }
            if order <= 0 { sourceRows.advance() }
            if order >= 0 { targetRows.advance() }
            if differences.count >= table.pageSize { written += try write(&differences, in: table) }
            if sourceRows.count >= reported + table.pageSize {
                reported = sourceRows.count
                progress(.copying, table, reported)
            }
        }
        written += try write(&differences, in: table)
        progress(.copying, table, sourceRows.count)
        return written
    }

    /// Returns which of two rows comes first: a negative number for the row of the source, a positive one for the row
    /// of the target, or 0 for rows with equal keys. A missing row comes last.
    private static func order(_ wanted: CopiedRow?, _ found: CopiedRow?, in table: StoredTable) -> Int {
        guard let wanted else { return 1 }
        guard let found else { return -1 }
        return wanted.compareKey(found, in: table)
    }

    /// Writes the differences to the target, and empties them.
    ///
    /// - Returns: the number of rows written or deleted.
    private func write(_ differences: inout Differences, in table: StoredTable) throws -> Int {
        let count = differences.count
        guard count > 0 else { return 0 }
        try target.replace(differences.old, with: differences.new, in: table)
        differences.old.removeAll(keepingCapacity: true)
        differences.new.removeAll(keepingCapacity: true)
        return count
    }

    /// The differences of a table that have not been written yet.
    private struct Differences {
        /// The rows of the target to delete.
        var old: [CopiedRow] = []
        /// The rows of the source to insert.
        var new: [CopiedRow] = []

        var count: Int { old.count + new.count }
    }

    /// Computes the checksum of a table.
    ///
    /// - Parameter progress: called with the number of rows after each page.
    private func checksum(
        _ table: StoredTable, of database: any CopySource, _ progress: (Int) -> Void
    ) throws -> TableChecksum {
        var checksum = TableChecksum()
        var last: CopiedRow?
        while true {
            let rows = try database.rows(of: table, after: last, limit: table.pageSize)
            guard let end = rows.last else { return checksum }
            for row in rows { checksum.add(row) }
            last = end
            progress(checksum.rows)
        }
    }

    /// Reads a table page by page.
    private struct Cursor {
        private let database: any CopySource
        private let table: StoredTable
        private var page: [CopiedRow] = []
        private var index = 0
        private var isAtEnd = false
        /// The number of rows before the current one.
        private(set) var count = 0

        init(_ database: any CopySource, _ table: StoredTable) {
            self.database = database
            self.table = table
        }

        /// Returns the current row, and reads a page if necessary; `nil` at the end.
        mutating func row() throws -> CopiedRow? {
            if index == page.count, !isAtEnd {
                page = try database.rows(of: table, after: page.last, limit: table.pageSize)
                index = 0
                isAtEnd = page.isEmpty
            }
            return index < page.count ? page[index] : nil
        }

        /// Moves to the next row.
        mutating func advance() {
            index += 1
            count += 1
        }
    }
}
