public import Bucketing
import JSON

extension ProfileRecord {
    /// One assignment in a record, its texts as places in the record's ``ProfileRecord/bytes``.
    public struct Entry: Sendable, Hashable {
        /// Where the UTF-8 of the experiment id lies.
        public let experimentID: Range<Int>
        /// Where the UTF-8 of the variation id lies.
        public let variationID: Range<Int>
        public let source: Assignment.Source
        public let assignedAt: Timestamp
        public let updatedAt: Timestamp
        public let expiresAt: Timestamp?
    }

    /// The entries of a record in the order of their experiment ids' bytes.
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
            // A record's bytes were checked when it was made, so that nothing is thrown here.
            return try? decoder.entry()
        }
    }

    /// All entries; those of a record from ``visible(at:)`` are the ones that a user has.
    public var entries: Entries { Entries(self) }

    /// The experiment id of an entry of this record.
    public func experimentID(of entry: Entry) -> Identifier {
        text(entry.experimentID)
    }

    /// The variation id of an entry of this record.
    public func variationID(of entry: Entry) -> Identifier {
        text(entry.variationID)
    }

    /// An entry of this record as a value that stands alone.
    public func assignment(of entry: Entry) -> Assignment {
        Assignment(
            variationID: text(entry.variationID), source: entry.source, assignedAt: entry.assignedAt,
            updatedAt: entry.updatedAt, expiresAt: entry.expiresAt
        )
    }

    /// The entry of an experiment, `nil` when there is none.
    public func entry(for experimentID: Identifier) -> Entry? {
        var sought = experimentID.string
        return sought.withUTF8 { sought in
            bytes.withUnsafeBytes { bytes in
                entries.first { UnsafeRawBufferPointer(rebasing: bytes[$0.experimentID]).hasSameBytes(as: .init(sought)) }
            }
        }
    }

    /// The assignment in an experiment, `nil` when there is none.
    public subscript(experimentID: Identifier) -> Assignment? {
        entry(for: experimentID).map(assignment(of:))
    }

    /// The variation in an experiment, `nil` when there is none.
    public func variationID(for experimentID: Identifier) -> Identifier? {
        entry(for: experimentID).map(variationID(of:))
    }

    private func text(_ range: Range<Int>) -> Identifier {
        bytes.withUnsafeBytes { Identifier(String(decoding: UnsafeRawBufferPointer(rebasing: $0[range]), as: UTF8.self)) }
    }
}
