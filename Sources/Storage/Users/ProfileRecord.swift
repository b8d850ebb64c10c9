public import Bucketing
public import Chronology
import JSON

/// One user's assignments in the compact binary form that stores keep in a row and caches hold.
///
/// ```
/// version          1 byte, 1; 2 if an entry has a layer
/// count            varint, number of entries
/// earliest expiry  varint, milliseconds since 1970; 0: no entry expires
/// entries          ascending by the bytes of the experiment id, each:
///     source and flags   1 byte, ``Assignment/Source``; bit 7: the entry expires; bit 6: it has a layer
///     experiment id      varint length, UTF-8
///     variation id       varint length, UTF-8
///     assigned at        varint, zigzag, milliseconds since 1970
///     updated at         varint, zigzag, difference to assigned at
///     expires at         varint, zigzag, difference to updated at; only with bit 7
///     layer              varint length, ``OverrideLayer``; only with bit 6, and only of an override:
///         members            1 byte; bit 0: author, bit 1: reason, bit 2: beneath
///         author, reason     varint length, UTF-8, each
///         beneath            source and flag, variation id and times as above
/// ```
///
/// A record without layers is the same in both versions.
///
/// A record is always well formed: its bytes were encoded here or validated by ``init(checking:)``.
public struct ProfileRecord: Sendable, Hashable {
    /// The encoded form.
    public let bytes: [UInt8]
    /// The number of entries, including expired ones.
    public let count: Int
    /// When the first entry, or an underlying assignment of an override, expires; `nil` if none does.
    public let earliestExpiry: Instant?
    /// The position of the first entry, after the header.
    let entriesOffset: Int

    /// The profile of a known user without assignments.
    public static let empty = ProfileRecord([:])

    /// Encodes assignments.
    public init(_ assignments: [Identifier: Assignment]) {
        let sorted = assignments.sorted { $0.key < $1.key }
        self.init(ascending: sorted.map { .init(experimentID: $0.key, assignment: $0.value) })
    }

    /// Validates bytes from outside, such as a database row.
    ///
    /// - Throws: ``ProfileRecordDamage`` unless the bytes are a well-formed record of a known version.
    public init(checking bytes: [UInt8]) throws(ProfileRecordDamage) {
        try self.init(header: bytes)
        try checkEntries()
    }

    /// Decodes the stored record of a user.
    ///
    /// - Throws: ``StorageError/damaged(reason:)``, which concerns only this user.
    public init(stored bytes: [UInt8], of userID: Identifier) throws(StorageError) {
        do throws(ProfileRecordDamage) {
            try self.init(checking: bytes)
        } catch {
            let profile = "the stored profile of '\(userID)'"
            // During an upgrade other servers write records that this one does not know.
            if case .unknownVersion(let version) = error, version != 0 {
                throw .damaged(reason: "\(profile) is of a newer release, with version \(version): upgrade this server")
            }
            throw .damaged(reason: "\(profile) is damaged: \(error); erase the user with DELETE to start over")
        }
    }

    /// Adopts the ``bytes`` of another record. Only their header is read, because they were validated before.
    ///
    /// - Throws: ``ProfileRecordDamage`` if the header is malformed.
    package init(trusting bytes: [UInt8]) throws(ProfileRecordDamage) {
        try self.init(header: bytes)
    }

    /// Creates a record from its properties, which must agree.
    init(bytes: [UInt8], count: Int, earliestExpiry: Instant?, entriesOffset: Int) {
        self.bytes = bytes
        self.count = count
        self.earliestExpiry = earliestExpiry
        self.entriesOffset = entriesOffset
    }

    /// Whether there are no entries.
    public var isEmpty: Bool { count == 0 }

    /// Returns the record without the entries and underlying assignments that have expired. An expired override gives
    /// way to its underlying assignment.
    ///
    /// - Returns: `nil` if all entries have expired, which means that there is no profile.
    public func visible(at now: Instant) -> ProfileRecord? {
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

extension ProfileRecord {
    /// One assignment in a record. Its ids are ranges of the record's ``ProfileRecord/bytes``.
    public struct Entry: Sendable, Hashable {
        /// The range of the experiment id's UTF-8 bytes.
        public let experimentID: Range<Int>
        /// The range of the variation id's UTF-8 bytes.
        public let variationID: Range<Int>
        public let source: Assignment.Source
        public let assignedAt: Instant
        public let updatedAt: Instant
        public let expiresAt: Instant?
        /// The range of the layer; empty if there is none.
        let layer: Range<Int>
    }

    /// The entries of a record in the byte order of their experiment ids.
    public struct Entries: Sequence, IteratorProtocol, Sendable {
        private var decoder: ProfileRecordDecoder
        private var remaining: Int

        init(_ record: ProfileRecord) {
            decoder = ProfileRecordDecoder(record.bytes, at: record.entriesOffset)
            remaining = record.count
        }

        public mutating func next() -> Entry? {
            guard remaining > 0 else { return nil }
            remaining -= 1
            // Cannot throw: the bytes were validated when the record was made.
            return try? decoder.entry()
        }
    }

    /// All entries, including expired ones; see ``visible(at:)``.
    public var entries: Entries { Entries(self) }

    /// Returns the experiment id of an entry of this record.
    public func experimentID(of entry: Entry) -> Identifier {
        text(entry.experimentID)
    }

    /// Returns the variation id of an entry of this record.
    public func variationID(of entry: Entry) -> Identifier {
        text(entry.variationID)
    }

    /// Returns an entry of this record as a value that does not refer to the record.
    public func assignment(of entry: Entry) -> Assignment {
        Assignment(
            variationID: text(entry.variationID), source: entry.source, assignedAt: entry.assignedAt,
            updatedAt: entry.updatedAt, expiresAt: entry.expiresAt, layer: layer(of: entry)
        )
    }

    private func layer(of entry: Entry) -> OverrideLayer? {
        guard !entry.layer.isEmpty else { return nil }
        // Cannot throw: the bytes were validated when the record was made.
        guard let layer = try? ProfileRecordDecoder.layer(entry.layer, of: bytes) else { return nil }
        return OverrideLayer(
            author: layer.author.map { text($0).string }, reason: layer.reason.map { text($0).string },
            beneath: layer.beneath.map(assignment(of:)))
    }

    /// Returns the entry of an experiment; `nil` if there is none.
    public func entry(for experimentID: Identifier) -> Entry? {
        var sought = experimentID.string
        return sought.withUTF8 { sought in
            bytes.withUnsafeBytes { bytes in
                entries.first { entry in
                    UnsafeRawBufferPointer(rebasing: bytes[entry.experimentID]).hasSameBytes(as: .init(sought))
                }
            }
        }
    }

    /// The assignment in an experiment; `nil` if there is none.
    public subscript(experimentID: Identifier) -> Assignment? {
        entry(for: experimentID).map(assignment(of:))
    }

    /// Returns the variation id in an experiment; `nil` if there is none.
    public func variationID(for experimentID: Identifier) -> Identifier? {
        entry(for: experimentID).map(variationID(of:))
    }

    private func text(_ range: Range<Int>) -> Identifier {
        bytes.withUnsafeBytes {
            Identifier(String(decoding: UnsafeRawBufferPointer(rebasing: $0[range]), as: UTF8.self))
        }
    }
}
