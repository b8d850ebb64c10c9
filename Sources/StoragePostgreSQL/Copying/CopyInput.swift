import Bucketing
import Storage

/// The input of `COPY … FROM STDIN (FORMAT binary)`,
/// <https://www.postgresql.org/docs/15/sql-copy.html#id-1.9.3.55.9.4>.
struct CopyInput {
    /// The input so far. It begins with the signature, followed by empty flags and an empty extension of the header.
    private var bytes: [UInt8] = Array("PGCOPY\n".utf8) + [0xFF, 0x0D, 0x0A, 0] + [UInt8](repeating: 0, count: 8)

    /// Begins a row, whose values are appended next.
    mutating func beginRow(columns: Int) {
        append(UInt16(truncatingIfNeeded: columns))
    }

    /// Appends a value in the format of a parameter of a statement.
    mutating func append(_ value: SQLValue) {
        // The greatest word is the length -1, which means NULL.
        guard let content = Parameter(value).bytes else { return append(UInt32.max) }
        append(UInt32(truncatingIfNeeded: content.count))
        bytes.append(contentsOf: content)
    }

    /// Appends a value of a copied row, in the format of its column.
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

    /// Ends the input, with the number of columns -1 in place of a row.
    ///
    /// - Returns: the bytes to send.
    consuming func end() -> [UInt8] {
        append(UInt16.max)
        return bytes
    }

    private mutating func append(_ number: some FixedWidthInteger) {
        withUnsafeBytes(of: number.bigEndian) { bytes.append(contentsOf: $0) }
    }
}

extension StoredTable {
    /// Whether PostgreSQL stores the rows as summands in the table `tallies`; see ``TallyRow``.
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
    /// Whether the row comes before another row in the order of keys.
    func precedes(_ other: CopiedRow, in table: StoredTable) -> Bool { compareKey(other, in: table) < 0 }

    /// Appends the row with the columns of ``StoredTable/target``.
    func append(to input: inout CopyInput, of table: StoredTable) {
        switch table {
        case .users:
            appendUser(to: &input)
        case .variationUsers:
            appendUserTally(to: &input)
        case .variationGoals:
            appendGoalTally(to: &input)
        default:
            input.beginRow(columns: values.count)
            for (value, column) in zip(values, table.columns) { input.append(value, as: column.type) }
        }
    }

    /// Appends a user. The row has: user, profile, expiry, attributes.
    private func appendUser(to input: inout CopyInput) {
        input.beginRow(columns: 6)
        input.append(values[0], as: .text)
        input.append(.integer(UserRows.newVersion()), as: .integer)
        input.append(values[1], as: .bytes)
        // A damaged profile is copied as it is, so that reading it reports the damage.
        let record = values[1].content.flatMap { try? ProfileRecord(checking: $0) }
        input.append(.integer(Int64(record?.count ?? 0)), as: .integer32)
        input.append(values[2], as: .integer)
        input.append(values[3], as: .bytes)
    }

    /// Appends a tally of users. The row has: experiment, variation, period, day, four counts.
    private func appendUserTally(to input: inout CopyInput) {
        input.beginRow(columns: 7)
        input.append(values[0], as: .text)
        input.append(values[1], as: .text)
        input.append(values[2], as: .integer)
        input.append(values[3], as: .integer)
        input.append(.null, as: .text)
        let counts = values[4..<8].map(\.integer) + [0]
        input.append(.integers(counts))
        input.append(.doubles([Double](repeating: 0, count: 10)))
    }

    /// Appends a tally of a goal. The row has: experiment, goal, variation, day, four counts, ten doubles, a fifth
    /// count. Goals have no period.
    private func appendGoalTally(to input: inout CopyInput) {
        input.beginRow(columns: 7)
        input.append(values[0], as: .text)
        input.append(values[2], as: .text)
        input.append(.integer(0), as: .integer)
        input.append(values[3], as: .integer)
        input.append(values[1], as: .text)
        let counts = values[4..<8].map(\.integer) + [values[18].integer]
        input.append(.integers(counts))
        input.append(.doubles(values[8..<18].map(\.double)))
    }

    /// Encodes the sum of tallies as a row of the table for users or for goals.
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

    /// Returns one column of rows as an array.
    static func values(_ rows: [CopiedRow], at index: Int, _ type: StoredTable.ColumnType) -> SQLValue {
        type == .text
            ? .texts(rows.map { $0.values[index] == .null ? nil : $0.values[index].string })
            : .integers(rows.map { $0.values[index].integer })
    }
}
