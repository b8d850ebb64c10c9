public import Chronology

/// A value of a column. Texts are UTF-8 bytes, so that they compare byte by byte, as in the databases.
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

    /// Compares two values of a key column: integers by size, texts by their bytes. Key columns have no other values.
    ///
    /// - Returns: a negative number if this value comes first, a positive one if `other` comes first, or else 0.
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

    /// - Parameter row: a row with all columns of the table, in order.
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

    /// Compares the keys of two rows.
    ///
    /// - Returns: a negative number if this row comes first, a positive one if `other` comes first, or 0 if the keys
    ///   are equal.
    package func compareKey(_ other: CopiedRow, in table: StoredTable) -> Int {
        for index in 0..<min(table.keyCount, values.count, other.values.count) {
            let order = values[index].compare(other.values[index])
            if order != 0 { return order }
        }
        return 0
    }
}

/// The last numbers that a store has assigned. The copy continues after them, so that it assigns none of them again.
public struct CopiedCounters: Sendable, Equatable {
    /// The greatest ``StoredDatafile/version``.
    public var newestDatafile: Int64
    /// The greatest ``AttributeDefinition/number``.
    public var newestAttribute: Int64
    /// The greatest number of an exposure or goal event.
    public var newestEvent: Int64
    /// The greatest ``AuditEntry/id``.
    public var newestAuditEntry: Int64
    /// The greatest ``TrackedSeries/number``.
    public var newestSeries: Int64
    /// Goal events that were received before this time have been deleted; ``Instant/epoch`` if none were.
    public var eventsSince: Instant
    /// The latest time of the store's ``StoreClock``, before which the copy's clock must not start.
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

/// The number of rows of a table, and a checksum over the rows in the order of their keys. The checksum is the 64-bit
/// FNV-1a hash over a tag and the bytes of each value (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv-17>).
/// Equal rows have equal checksums, even in different databases.
public struct TableChecksum: Sendable, Equatable {
    public private(set) var rows = 0
    public private(set) var value = Self.offsetBasis

    /// The constants of the hash, from section 5 of the draft.
    private static let offsetBasis: UInt64 = 0xcbf2_9ce4_8422_2325
    private static let prime: UInt64 = 0x100_0000_01b3

    /// The byte before each value, so that values of different types have different hashes.
    private enum Tag: UInt8 {
        case null = 0
        case integer = 1
        case double = 2
        /// Texts and bytes, because databases do not distinguish the two in the same way.
        case content = 3
    }

    /// Adds the next row of the table.
    public mutating func add(_ row: CopiedRow) {
        rows += 1
        for value in row.values {
            switch value {
            case .null: add(Tag.null.rawValue)
            case .integer(let number):
                add(Tag.integer.rawValue)
                add(word: UInt64(bitPattern: number))
            case .double(let number):
                add(Tag.double.rawValue)
                // SQLite stores no negative zero.
                add(word: number == 0 ? 0 : number.bitPattern)
            case .text(let bytes), .bytes(let bytes):
                add(Tag.content.rawValue)
                add(word: UInt64(bytes.count))
                for byte in bytes { add(byte) }
            }
        }
    }

    private mutating func add(_ byte: UInt8) {
        value = (value ^ UInt64(byte)) &* Self.prime
    }

    /// Adds the 8 bytes of a number, lowest first.
    private mutating func add(word number: UInt64) {
        for shift in stride(from: UInt64(0), to: 64, by: 8) { add(UInt8(truncatingIfNeeded: number >> shift)) }
    }
}
