public import Bucketing

/// The last day on which servers recorded a use of a flag or a variation. Admins find unused flags by it.
public struct LastUse: Sendable, Hashable {
    /// The kind of use. Databases store the raw value.
    public enum Kind: Int64, Sendable {
        /// A server has seen the flag. Recorded on the first day only, because uses before that day are unknown.
        case known = 0
        /// A flag was evaluated. ``Subject/key`` is the key of the flag, and ``Subject/variation`` is the key of the
        /// variation.
        case evaluated = 1
        /// A user was exposed. ``Subject/key`` is the id of the experiment, and ``Subject/variation`` is the id of the
        /// variation.
        case exposed = 2
    }

    /// The object of a use, and the kind of use. A store keeps one day for each subject.
    public struct Subject: Sendable, Hashable {
        public var sdkKey: String
        public var kind: Kind
        public var key: Identifier
        /// The key or id of the variation; empty if there is none.
        public var variation: Identifier

        public init(sdkKey: String, _ kind: Kind, _ key: Identifier, variation: Identifier) {
            self.sdkKey = sdkKey
            self.kind = kind
            self.key = key
            self.variation = variation
        }
    }

    public var subject: Subject
    /// The UTC day, counted from 1970-01-01.
    public var day: Int64

    public init(_ subject: Subject, day: Int64) {
        self.subject = subject
        self.day = day
    }
}

extension SharedChange<Void> {
    /// Records the last uses of several subjects. Each subject must occur once.
    public static func note(_ uses: [LastUse]) -> Self {
        Self(bytes: WaitingBytes.ofChange + uses.count * LastUse.waitingBytes) { records, _ in
            records.write(.putLastUses(uses))
        }
    }
}

extension StoreQuery<[LastUse]> {
    /// Reads the last uses of a project.
    public static func lastUses(sdkKey: String) -> Self {
        Self(.lastUses(sdkKey: sdkKey)) { _ in
            let sql = "SELECT \(StoredTable.lastUses.columnList) FROM last_uses WHERE sdk_key = $1"
            return .all(SQLQuery("last_uses", sql, .text(sdkKey))) { LastUse($0) }
        }
    }
}

extension LastUse {
    /// The estimated memory of one use in a waiting change, in bytes; see ``WaitingBytes``.
    fileprivate static let waitingBytes = 128

    package init(_ row: any Row) {
        // A newer release may store other kinds, which perhaps are not uses. `known` is the kind that claims least.
        let kind = Kind(rawValue: row.bounded(1)) ?? .known
        self.init(
            Subject(sdkKey: row.text(0), kind, row.identifier(2), variation: row.identifier(3)), day: row.bounded(4))
    }

    package var values: [SQLValue] {
        [
            .text(subject.sdkKey), .integer(subject.kind.rawValue), .text(subject.key), .text(subject.variation),
            .integer(day),
        ]
    }
}
