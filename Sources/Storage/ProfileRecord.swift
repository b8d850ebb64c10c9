public import Bucketing

/// One user's assignments in their compact binary form: what a store keeps in a row and what a cache holds.
///
/// ```
/// version          1 byte, 1
/// count            varint, number of entries
/// earliest expiry  varint, milliseconds since 1970; 0: no entry expires
/// entries          ascending by the bytes of the experiment id, each:
///     source and flag    1 byte, ``Assignment/Source``; bit 7: the entry expires
///     experiment id      varint length, UTF-8
///     variation id       varint length, UTF-8
///     assigned at        varint, zigzag, milliseconds since 1970
///     updated at         varint, zigzag, difference to assigned at
///     expires at         varint, zigzag, difference to updated at; only with bit 7
/// ```
///
/// The bytes of a record are always well formed: they were encoded here or checked by ``init(checking:)``.
public struct ProfileRecord: Sendable, Hashable {
    /// The encoded form.
    public let bytes: [UInt8]
    /// Entries, those that have expired included.
    public let count: Int
    /// When the first entry expires; `nil` when none ever does.
    public let earliestExpiry: Timestamp?
    let entriesOffset: Int

    /// The profile of a user who is known and has no assignment.
    public static let empty = ProfileRecord([:])

    /// Encodes assignments.
    public init(_ assignments: [Identifier: Assignment]) {
        let sorted = assignments.sorted { $0.key < $1.key }
        self.init(ascending: sorted.map { .init(experimentID: $0.key, assignment: $0.value) })
    }

    /// Reads a record that comes from outside, such as a row of a database.
    ///
    /// - Throws: ``ProfileRecordDamage`` unless every byte is as this version of the format demands.
    public init(checking bytes: [UInt8]) throws(ProfileRecordDamage) {
        try self.init(header: bytes)
        try checkEntries()
    }

    /// Takes the ``bytes`` of another record; only their header is read.
    package init(trusting bytes: [UInt8]) throws(ProfileRecordDamage) {
        try self.init(header: bytes)
    }

    init(bytes: [UInt8], count: Int, earliestExpiry: Timestamp?, entriesOffset: Int) {
        self.bytes = bytes
        self.count = count
        self.earliestExpiry = earliestExpiry
        self.entriesOffset = entriesOffset
    }

    /// Whether there is no entry at all.
    public var isEmpty: Bool { count == 0 }

    /// The record as a reader sees it at a moment: without what has expired by then.
    ///
    /// - Returns: `nil` when all entries have expired, which means that there is no profile.
    public func visible(at now: Timestamp) -> ProfileRecord? {
        guard let earliestExpiry, earliestExpiry <= now else { return self }
        let draft = ProfileDraft(self, at: now)
        return draft.isEmpty ? nil : draft.record
    }
}

extension ProfileRecord: CustomStringConvertible {
    public var description: String {
        let entries = entries.map { "\(experimentID(of: $0)): \(variationID(of: $0)) (\($0.source))" }
        return "[\(entries.joined(separator: ", "))]"
    }
}
