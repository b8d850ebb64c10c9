public import Chronology

/// A value of a column. Texts are kept as UTF-8, so that they compare byte by byte, as in the databases.
public enum CopiedValue: Sendable, Equatable {
    case null
    case integer(Int64)
    case double(Double)
    case text([UInt8])
    case bytes([UInt8])

    /// The integer; 0 for anything else.
    public var integer: Int64 { if case .integer(let number) = self { number } else { 0 } }

    /// The number; 0 for anything else.
    public var double: Double { if case .double(let number) = self { number } else { 0 } }

    /// The bytes of a text or of bytes; `nil` for anything else.
    public var content: [UInt8]? {
        switch self {
        case .text(let bytes), .bytes(let bytes): bytes
        case .null, .integer, .double: nil
        }
    }

    public var string: String { String(decoding: content ?? [], as: UTF8.self) }

    /// Compares values of key columns, which are integers or texts: negative if this one comes first, positive if the
    /// other does, 0 if they are equal.
    fileprivate func compare(_ other: CopiedValue) -> Int {
        switch (self, other) {
        case (.integer(let left), .integer(let right)):
            if left == right { return 0 }
            return left < right ? -1 : 1
        case (.text(let left), .text(let right)):
            if left == right { return 0 }
            return left.lexicographicallyPrecedes(right) ? -1 : 1
        default: return 0
        }
    }
}

/// A row of a ``StoredTable``.
public struct CopiedRow: Sendable, Equatable {
    /// The values in the order of the table's columns.
    public var values: [CopiedValue]

    public init(_ values: [CopiedValue]) {
        self.values = values
    }

    package init(_ row: any Row, of table: StoredTable) {
        values = table.columns.enumerated().map { index, column in
            let index = Int32(index)
            if row.isNull(index) { return .null }
            return switch column.type {
            case .text: .text(row.bytes(index))
            case .bytes: .bytes(row.bytes(index))
            case .integer, .integer32: .integer(row.integer(index))
            case .double: .double(row.double(index))
            }
        }
    }

    /// Compares the keys of two rows: negative if this one comes first, positive if the other does, 0 if they are
    /// equal.
    package func compareKey(_ other: CopiedRow, in table: StoredTable) -> Int {
        for index in 0..<min(table.keyCount, values.count, other.values.count) {
            let order = values[index].compare(other.values[index])
            if order != 0 { return order }
        }
        return 0
    }
}

/// The last numbers that a store has assigned, so that the copy assigns none of them again.
public struct CopiedCounters: Sendable, Equatable {
    public var newestDatafile: Int64
    public var newestAttribute: Int64
    /// The last number of an exposure or goal event.
    public var newestEvent: Int64
    public var newestAuditEntry: Int64
    /// See ``TrackedSeries/number``.
    public var newestSeries: Int64
    /// Goal events that were received before this time have been deleted; ``Instant/epoch`` if none were.
    public var eventsSince: Instant
    /// See ``StoreClock``.
    public var latestTime: Instant
    /// See ``StoreGeneration/storeID``.
    public var storeID: Int64

    public init(
        newestDatafile: Int64, newestAttribute: Int64, newestEvent: Int64, newestAuditEntry: Int64,
        newestSeries: Int64, eventsSince: Instant, latestTime: Instant, storeID: Int64
    ) {
        self.newestDatafile = newestDatafile
        self.newestAttribute = newestAttribute
        self.newestEvent = newestEvent
        self.newestAuditEntry = newestAuditEntry
        self.newestSeries = newestSeries
        self.eventsSince = eventsSince
        self.latestTime = latestTime
        self.storeID = storeID
    }
}

/// The number of rows of a table, and a checksum over them in the order of their keys. The checksum is the 64-bit
/// FNV-1a hash over a tag and the bytes of each value (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv-17>).
/// It is the same for equal rows in different databases.
public struct TableChecksum: Sendable, Equatable {
    public private(set) var rows = 0
    public private(set) var value: UInt64 = 0xcbf2_9ce4_8422_2325

    public mutating func add(_ row: CopiedRow) {
        rows += 1
        for value in row.values {
            switch value {
            case .null: add(0)
            case .integer(let number):
                add(1)
                add(word: UInt64(bitPattern: number))
            case .double(let number):
                add(2)
                // SQLite stores no negative zero.
                add(word: number == 0 ? 0 : number.bitPattern)
            case .text(let bytes), .bytes(let bytes):
                add(3)
                add(word: UInt64(bytes.count))
                for byte in bytes { add(byte) }
            }
        }
    }

    private mutating func add(_ byte: UInt8) {
        value = (value ^ UInt64(byte)) &* 0x100_0000_01b3
    }

    /// Adds the 8 bytes of a number, lowest first.
    private mutating func add(word number: UInt64) {
        for shift in stride(from: UInt64(0), to: 64, by: 8) { add(UInt8(truncatingIfNeeded: number >> shift)) }
    }
}
