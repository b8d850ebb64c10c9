import Bucketing
import CPostgreSQL
import Storage

/// The input of `COPY … FROM STDIN (FORMAT binary)`,
/// <https://www.postgresql.org/docs/15/sql-copy.html#id-1.9.3.55.9.4>.
struct CopyInput {
    private var bytes: [UInt8] = Array("PGCOPY\n".utf8) + [0xFF, 0x0D, 0x0A, 0] + [UInt8](repeating: 0, count: 8)

    mutating func beginRow(columns: Int) {
        append(UInt16(truncatingIfNeeded: columns))
    }

    /// Appends a value in the format of a parameter of a statement.
    mutating func append(_ value: SQLValue) {
        guard let content = Parameter(value).bytes else { return append(UInt32.max) }
        append(UInt32(truncatingIfNeeded: content.count))
        bytes.append(contentsOf: content)
    }

    mutating func append(_ value: CopiedValue, as type: StoredTable.ColumnType) {
        switch value {
        case .null: append(UInt32.max)
        case .text(let content), .bytes(let content):
            append(UInt32(truncatingIfNeeded: content.count))
            bytes.append(contentsOf: content)
        case .integer(let number) where type == .integer32:
            append(UInt32(4))
            append(Int32(clamping: number))
        case .integer(let number):
            append(UInt32(8))
            append(number)
        case .double(let number):
            append(UInt32(8))
            append(number.bitPattern)
        }
    }

    /// The input with its end.
    consuming func end() -> [UInt8] {
        append(UInt16.max)
        return bytes
    }

    private mutating func append(_ number: some FixedWidthInteger) {
        withUnsafeBytes(of: number.bigEndian) { bytes.append(contentsOf: $0) }
    }
}

extension StoredTable {
    /// Whether PostgreSQL keeps it in `tallies`, as addends.
    var isTally: Bool { self == .variationUsers || self == .variationGoals }

    /// The table and columns that rows are inserted into.
    var target: String {
        switch self {
        case .users: "users (user_id, version, profile, assignments, expires_at, attributes)"
        case .variationUsers, .variationGoals:
            "tallies (experiment_id, variation_id, period, day, goal, counts, sums)"
        default: "\(rawValue) (\(columnList))"
        }
    }
}

extension CopiedRow {
    func precedes(_ other: CopiedRow, in table: StoredTable) -> Bool { compareKey(other, in: table) < 0 }

    func append(to input: inout CopyInput, of table: StoredTable) {
        switch table {
        case .users:
            input.beginRow(columns: 6)
            input.append(values[0], as: .text)
            input.append(.integer(.random(in: .min ... .max)), as: .integer)
            input.append(values[1], as: .bytes)
            // A damaged profile is copied as it is, so that reading it reports the damage.
            let record = values[1].content.flatMap { try? ProfileRecord(checking: $0) }
            input.append(.integer(Int64(record?.count ?? 0)), as: .integer32)
            input.append(values[2], as: .integer)
            input.append(values[3], as: .bytes)
        case .variationUsers, .variationGoals:
            let isGoal = table == .variationGoals
            input.beginRow(columns: 7)
            input.append(values[0], as: .text)
            input.append(values[isGoal ? 2 : 1], as: .text)
            input.append(isGoal ? .integer(0) : values[2], as: .integer)
            input.append(values[3], as: .integer)
            input.append(isGoal ? values[1] : .null, as: .text)
            let counts = values[4..<8].map(\.integer) + [isGoal ? values[18].integer : 0]
            input.append(.integers(counts))
            input.append(.doubles(isGoal ? values[8..<18].map(\.double) : [Double](repeating: 0, count: 10)))
        default:
            input.beginRow(columns: values.count)
            for (value, column) in zip(values, table.columns) { input.append(value, as: column.type) }
        }
    }

    /// A sum of tallies.
    init(_ row: TallyRow, in table: StoredTable) {
        let key = row.key
        func text(_ identifier: Identifier?) -> CopiedValue { .text(Array((identifier?.string ?? "").utf8)) }
        self.init([text(key.experimentID)])
        if table == .variationUsers {
            values += [text(key.variationID), .integer(key.period), .integer(key.day)]
            values += row.counts.prefix(4).map { .integer($0) }
        } else {
            values += [text(key.goal), text(key.variationID), .integer(key.day)]
            values += row.counts.prefix(4).map { .integer($0) }
            values += row.sums.flatMap { [.double($0.value), .double($0.rest)] }
            values.append(.integer(row.counts[4]))
        }
    }
}

extension SQLValue {
    init(_ value: CopiedValue) {
        switch value {
        case .null: self = .text(String?.none)
        case .integer(let number): self = .integer(number)
        case .double(let number): self = .double(number)
        case .bytes(let content): self = .bytes(content)
        case .text: self = .text(value.string)
        }
    }

    /// One column of rows as an array.
    static func values(_ rows: [CopiedRow], at index: Int, _ type: StoredTable.ColumnType) -> SQLValue {
        type == .text
            ? .texts(rows.map { $0.values[index] == .null ? nil : $0.values[index].string })
            : .integers(rows.map { $0.values[index].integer })
    }
}

extension Handle {
    /// Executes a statement of all stores.
    func run(_ query: SQLQuery) throws(PostgreSQLError) {
        _ = try self.query(query.sql, query.parameters)
    }

    /// Executes a statement with parameters and blocks until done; before the connection is in pipeline mode.
    func query(_ sql: String, _ values: [SQLValue] = []) throws(PostgreSQLError) -> Rows {
        let parameters = values.map { Parameter($0) }
        let types = parameters.map { Oid($0.type) }
        let lengths = parameters.map { Int32(clamping: $0.bytes?.count ?? 0) }
        let formats = [Int32](repeating: 1, count: parameters.count)
        // Not NULL, even if empty.
        let buffers = parameters.map { parameter in
            parameter.bytes.map { bytes in
                let buffer = UnsafeMutablePointer<CChar>.allocate(capacity: bytes.count + 1)
                for (index, byte) in bytes.enumerated() { buffer[index] = CChar(bitPattern: byte) }
                return buffer
            }
        }
        defer { for buffer in buffers { buffer?.deallocate() } }
        let contents = buffers.map { $0.map { UnsafePointer($0) } }
        let result = PQexecParams(pointer, sql, Int32(parameters.count), types, contents, lengths, formats, 1)
        return try Rows(checked(result))
    }

    /// Copies rows into a table.
    func copy(_ input: [UInt8], into target: String) throws(PostgreSQLError) {
        let begun = PQexec(pointer, "COPY \(target) FROM STDIN (FORMAT binary)")
        guard PQresultStatus(begun) == PGRES_COPY_IN else { return PQclear(try checked(begun)) }
        PQclear(begun)
        let isSent = input.withUnsafeBytes { bytes in
            PQputCopyData(pointer, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(clamping: bytes.count))
        }
        _ = PQputCopyEnd(pointer, isSent == 1 ? nil : "the rows could not be sent")
        let end = PQgetResult(pointer)
        while let other = PQgetResult(pointer) { PQclear(other) }
        PQclear(try checked(end))
    }

    /// Makes a sequence continue after a number.
    func setSequence(_ sequence: String, to last: Int64) throws(PostgreSQLError) {
        _ = try query("SELECT setval(\(sequence), greatest($1, 1), $1 > 0)", [.integer(last)])
    }

    /// - Throws: the error that the result reports.
    private func checked(_ result: OpaquePointer?) throws(PostgreSQLError) -> OpaquePointer {
        guard let result else {
            throw PostgreSQLError(connection: PostgreSQLError.line(String(cString: PQerrorMessage(pointer))))
        }
        guard [PGRES_COMMAND_OK, PGRES_TUPLES_OK].contains(PQresultStatus(result)) else {
            defer { PQclear(result) }
            throw PostgreSQLError(result)
        }
        return result
    }
}
