/// A database whose content can be read table by table. Only one thread may use it.
public protocol CopySource: AnyObject {
    /// Identifies the database in messages, without secrets.
    var name: String { get }

    /// Reads rows in the order of their keys.
    ///
    /// - Parameters:
    ///   - row: only rows with greater keys are read; `nil` reads from the beginning.
    ///   - limit: the approximate number of rows to read.
    /// - Returns: an empty array at the end, and only there.
    func rows(of table: StoredTable, after row: CopiedRow?, limit: Int) throws -> [CopiedRow]

    /// Reads the last numbers that the database has assigned.
    func counters() throws -> CopiedCounters
}

/// A database that becomes the copy of another.
public protocol CopyTarget: CopySource {
    /// Reads the mark of a database that is the target of a copy; `nil` if it is not. The first server that uses a
    /// complete copy removes the mark.
    func mark() throws -> CopyMark?

    /// Marks the database as an incomplete copy, so that no server uses it.
    ///
    /// - Parameter isFirst: whether there is no mark yet, and the database is empty.
    func begin(copyOf source: String, isFirst: Bool) throws

    /// Deletes rows by their keys, then inserts others, in one transaction. The two lists may have keys in common.
    func replace(_ old: [CopiedRow], with new: [CopiedRow], in table: StoredTable) throws

    /// Completes the copy. Another copy of the same source may still follow, until a server uses the database.
    func finish(_ counters: CopiedCounters) throws
}

/// The mark of a database that is the target of a copy.
public struct CopyMark: Sendable {
    /// The ``CopySource/name`` of the source.
    public let source: String
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
    /// The checksums of a table in both databases, read after the copy.
    public struct Comparison: Sendable {
        public let table: StoredTable
        public let source: TableChecksum
        public let target: TableChecksum

        public var isEqual: Bool { source == target }
    }

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

    /// Copies, compares, and completes the copy if everything is equal.
    ///
    /// - Returns: the number of rows written or deleted, and the comparison of all tables.
    /// - Throws: ``CopyError``, and errors of the databases; the target is unfinished then, and the same copy may be
    ///   run again.
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

    /// - Throws: ``CopyError`` if the target holds anything but an earlier, perhaps unfinished copy of the same source.
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

    /// Writes the differences of one table.
    ///
    /// - Returns: the number of rows written or deleted.
    private func copy(_ table: StoredTable) throws -> Int {
        var sourceRows = Cursor(source, table)
        var targetRows = Cursor(target, table)
        // The rows of the target to delete, and those of the source to insert.
        var old: [CopiedRow] = []
        var new: [CopiedRow] = []
        var written = 0
        var reported = 0
        func write() throws {
            guard !old.isEmpty || !new.isEmpty else { return }
            try target.replace(old, with: new, in: table)
            written += old.count + new.count
            old.removeAll(keepingCapacity: true)
            new.removeAll(keepingCapacity: true)
        }
        // Written rows have keys before the target's next row, which has been read already, so they are not read again.
        while true {
            let wanted = try sourceRows.row()
            let found = try targetRows.row()
            guard wanted != nil || found != nil else { break }
            // Which of the two rows comes first: negative for the source's, positive for the target's, 0 for equal
            // keys.
            var order = wanted == nil ? 1 : -1
            if let wanted, let found { order = wanted.compareKey(found, in: table) }
            if order == 0, let wanted, let found, wanted != found {
                old.append(found)
                new.append(wanted)
            } else if order < 0, let wanted {
                new.append(wanted)
            } else if order > 0, let found {
                old.append(found)
            }
            if order <= 0 { sourceRows.advance() }
            if order >= 0 { targetRows.advance() }
            if old.count + new.count >= table.pageSize { try write() }
            if sourceRows.count >= reported + table.pageSize {
                reported = sourceRows.count
                progress(.copying, table, reported)
            }
        }
        try write()
        progress(.copying, table, sourceRows.count)
        return written
    }

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
        /// The number of rows that were passed.
        private(set) var count = 0

        init(_ database: any CopySource, _ table: StoredTable) {
            self.database = database
            self.table = table
        }

        /// The next row; `nil` at the end.
        mutating func row() throws -> CopiedRow? {
            if index == page.count, !isAtEnd {
                page = try database.rows(of: table, after: page.last, limit: table.pageSize)
                index = 0
                isAtEnd = page.isEmpty
            }
            return index < page.count ? page[index] : nil
        }

        mutating func advance() {
            index += 1
            count += 1
        }
    }
}
