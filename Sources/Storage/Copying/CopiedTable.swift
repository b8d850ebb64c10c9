/// A table in the form that all stores can read and write, so that one store's content can become another's.
///
/// Names and columns are those of `migrations/`. Two tables differ between stores: ``users`` is a profile and the
/// attributes of one user, wherever a store keeps them; ``variationUsers`` and ``variationGoals`` are the tallies,
/// added up.
public enum CopiedTable: String, Sendable, CaseIterable {
    case projects
    case datafiles
    case attributes
    case attributeRemovals = "attribute_removals"
    case segments
    case allocationPeriods = "allocation_periods"
    case users
    case forcedVariations = "forced_variations"
    case stickyDocuments = "sticky_documents"
    case exposures
    case goalEvents = "goal_events"
    case userGoals = "user_goals"
    case variationUsers = "variation_users"
    case variationGoals = "variation_goals"
    case audit

    public enum ColumnType: Sendable {
        case text, integer, double, bytes
        /// An integer of 32 bits, where a store tells them apart.
        case integer32
    }

    public struct Column: Sendable {
        public let name: String
        public let type: ColumnType
    }

    /// The columns; the first ``keyCount`` are the key.
    public var columns: [Column] {
        switch self {
        case .projects:
            Self.columns(
                ("sdk_key", .text), ("name", .text), ("created_at", .integer), ("is_default", .integer32))
        case .datafiles:
            Self.columns(
                ("version", .integer), ("sdk_key", .text), ("revision", .text), ("content", .bytes),
                ("stored_at", .integer), ("author", .text))
        case .attributes: Self.columns(("number", .integer), ("name", .text), ("definition", .text))
        case .attributeRemovals: Self.columns(("number", .integer), ("after_user_id", .text))
        case .segments: Self.columns(("name", .text), ("conditions", .text))
        case .allocationPeriods:
            Self.columns(
                ("experiment_id", .text), ("number", .integer), ("sdk_key", .text), ("since", .integer),
                ("allocation", .text))
        case .users:
            Self.columns(("user_id", .text), ("profile", .bytes), ("expires_at", .integer), ("attributes", .bytes))
        case .forcedVariations:
            Self.columns(("sdk_key", .text), ("user_id", .text), ("experiment_key", .text), ("variation_key", .text))
        case .stickyDocuments:
            Self.columns(("attribute_value", .text), ("attribute_name", .text), ("assignments", .text))
        case .exposures:
            Self.columns(
                ("user_id", .text), ("experiment_id", .text), ("number", .integer), ("experiment_key", .text),
                ("variation_id", .text), ("happened_at", .integer), ("flags", .integer32), ("sdk_key", .text),
                ("payload", .text), ("period", .integer))
        case .goalEvents:
            Self.columns(
                ("number", .integer), ("user_id", .text), ("goal", .text), ("value", .double),
                ("happened_at", .integer), ("received_at", .integer), ("sdk_key", .text), ("sender_id", .text),
                ("payload", .text))
        case .userGoals:
            Self.columns(
                ("user_id", .text), ("experiment_id", .text), ("goal", .text), ("before_count", .integer),
                ("before_value", .double), ("after_count", .integer), ("after_value", .double))
        case .variationUsers:
            Self.columns(
                ("experiment_id", .text), ("variation_id", .text), ("period", .integer), ("day", .integer),
                ("counted", .integer), ("crossed", .integer), ("forced", .integer))
        case .variationGoals:
            Self.columns(
                ("experiment_id", .text), ("goal", .text), ("variation_id", .text), ("day", .integer),
                ("events", .integer), ("converted", .integer), ("converted_before", .integer),
                ("converted_both", .integer), ("y", .double), ("y_rest", .double), ("yy", .double),
                ("yy_rest", .double), ("x", .double), ("x_rest", .double), ("xx", .double), ("xx_rest", .double),
                ("xy", .double), ("xy_rest", .double))
        case .audit:
            Self.columns(
                ("id", .integer), ("recorded_at", .integer), ("author", .text), ("request_id", .text),
                ("action", .text), ("user_id", .text), ("target", .text), ("before", .text), ("after", .text))
        }
    }

    public var keyCount: Int {
        switch self {
        case .projects, .datafiles, .attributes, .attributeRemovals, .segments, .users, .goalEvents, .audit: 1
        case .allocationPeriods, .stickyDocuments, .exposures: 2
        case .forcedVariations, .userGoals: 3
        case .variationUsers, .variationGoals: 4
        }
    }

    /// How many rows are read and written at once. Datafiles may have megabytes each.
    public var pageSize: Int { self == .datafiles ? 16 : 2_000 }

    private static func columns(_ columns: (String, ColumnType)...) -> [Column] {
        columns.map { Column(name: $0.0, type: $0.1) }
    }
}

/// A value of a column. Texts are their UTF-8, so that they compare by bytes, as databases do.
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

    fileprivate func compare(_ other: CopiedValue) -> Int {
        switch (self, other) {
        case (.integer(let left), .integer(let right)): left < right ? -1 : left > right ? 1 : 0
        case (.text(let left), .text(let right)):
            left == right ? 0 : left.lexicographicallyPrecedes(right) ? -1 : 1
        default: 0
        }
    }
}

/// A row of a ``CopiedTable``.
public struct CopiedRow: Sendable, Equatable {
    /// In the order of the table's columns.
    public var values: [CopiedValue]

    public init(_ values: [CopiedValue]) {
        self.values = values
    }

    /// Negative if its key comes before the other's, positive if after.
    package func compareKey(_ other: CopiedRow, in table: CopiedTable) -> Int {
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
    /// Of exposures and goal events.
    public var newestEvent: Int64
    public var newestAuditEntry: Int64
    /// See ``StoreClock``.
    public var latestTime: Timestamp

    public init(
        newestDatafile: Int64, newestAttribute: Int64, newestEvent: Int64, newestAuditEntry: Int64,
        latestTime: Timestamp
    ) {
        self.newestDatafile = newestDatafile
        self.newestAttribute = newestAttribute
        self.newestEvent = newestEvent
        self.newestAuditEntry = newestAuditEntry
        self.latestTime = latestTime
    }
}

/// The number of rows of a table, and a checksum over them in the order of their keys: 64-bit FNV-1a over a tag and the
/// bytes of each value, <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv-17>.
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

    private mutating func add(word number: UInt64) {
        for shift in stride(from: UInt64(0), to: 64, by: 8) { add(UInt8(truncatingIfNeeded: number >> shift)) }
    }
}
