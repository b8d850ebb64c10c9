public import Bucketing
public import Chronology

/// A line of the feed: one change of one user.
///
/// The feed is a log of the changes of users, for edges and other readers. It has three levels:
///
/// - A **row** (``FeedRow``) holds the changes of one transaction, or a part of them.
/// - An **encoded entry** in a row holds one write (``UserRecords/Write``), for example the profile of a user.
/// - A **line** holds one change. This type is a line, although readers call it an entry: if a transaction saves three
///   assignments of a user, its row has one encoded entry with three lines.
public struct FeedEntry: Sendable {
    /// The change of the user.
    public enum Change: Sendable {
        /// The assignment in an experiment after the change; `nil` if it was removed.
        case assignment(experimentID: Identifier, Assignment?)
        /// The user got a profile without assignments.
        case emptyProfile
        /// The exposure to an experiment after the change. ``StoredExposure/number`` is 0, because the feed does not
        /// keep the number.
        case exposure(StoredExposure)
        /// A goal event that was stored.
        case goal(GoalEvent)
        /// The numbers of the attributes that were set or removed.
        case attributes([UInt32])
        /// Another user was merged into this one.
        case merge(from: Identifier)
        /// Everything about the user was erased.
        case erasure
    }

    public let userID: Identifier
    public let change: Change
}

/// A row of the feed: the changes of one transaction, or a part of them, as encoded entries. `FeedEncoder` and
/// `FeedDecoder` write and read an entry:
///
/// ```
/// kind      1 byte, `EntryKind`
/// user id   varint length, UTF-8; empty if the entry was erased
/// content   varint length and that many bytes, by kind:
///     erased        varint number of lines
///     assignments   varint number of removed assignments, the experiment id of each as varint length and UTF-8; then
///                   the changed assignments as in ``ProfileRecord``
///     exposure, goal, attributes, merge   their members in order; see `FeedEncoder`
///     erasure       nothing
/// ```
public struct FeedRow: Sendable {
    /// The kind of an encoded entry. Databases store the raw value.
    enum EntryKind: UInt8 {
        /// Replaces the entry of a user who has been erased since.
        case erased = 0
        case assignments = 1
        case exposure = 2
        case goal = 3
        case attributes = 4
        case merge = 5
        /// The erasure of a user.
        case erasure = 6
    }

    /// Increases with each transaction. Of two transactions about one user, the later one has the greater number.
    public let number: Int64
    public let recordedAt: Instant
    /// The encoded entries, one after the other.
    public let entries: [UInt8]

    public init(number: Int64, recordedAt: Instant, entries: [UInt8]) {
        self.number = number
        self.recordedAt = recordedAt
        self.entries = entries
    }

    /// Decodes the lines of the row in order. A line keeps its position even after other lines have been erased,
    /// because a ``FeedCursor`` counts lines.
    ///
    /// - Returns: the lines; `nil` in place of a line whose user has been erased since.
    /// - Throws: ``StorageError/unavailable(reason:)`` if the row is damaged, or of a newer release.
    public func lines() throws(StorageError) -> [FeedEntry?] {
        var lines: [FeedEntry?] = []
        try forEachEntry { entry, decoder throws(ProfileRecordDamage) in
            try decoder.append(entry, to: &lines)
        }
        return lines
    }

    /// Passes each encoded entry to a closure, with the decoder for its content.
    ///
    /// - Throws: ``StorageError/unavailable(reason:)`` if the row is damaged, or of a newer release.
    func forEachEntry(
        _ body: (FeedDecoder.Entry, FeedDecoder) throws(ProfileRecordDamage) -> Void
    ) throws(StorageError) {
        do throws(ProfileRecordDamage) {
            var decoder = FeedDecoder(entries)
            while let entry = try decoder.next() { try body(entry, decoder) }
        } catch {
            throw .unavailable(reason: "row \(number) of the feed is damaged: \(error)")
        }
    }
}
