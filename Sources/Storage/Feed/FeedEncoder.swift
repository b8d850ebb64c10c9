package import Bucketing
import JSON

/// Encodes the writes of a transaction as the entries of a ``FeedRow``, for all stores. ``FeedRow`` describes the
/// format.
package struct FeedEncoder: Sendable {
    private var encoder: ProfileRecordEncoder

    /// - Parameter capacity: the number of bytes to reserve.
    package init(capacity: Int = 0) {
        encoder = ProfileRecordEncoder(capacity: capacity)
    }

    package var bytes: [UInt8] { encoder.bytes }
    package var isEmpty: Bool { encoder.bytes.isEmpty }

    /// Appends the entry of a write, if readers of the feed need it. They do not need totals, allocation periods,
    /// forced variations, sticky documents and the audit log.
    package mutating func append(_ write: UserRecords.Write, of userID: Identifier) {
        switch write {
        case .putProfile(let record, let stored): append(record, replacing: stored, of: userID)
        case .putExposure(let stored): append(stored)
        case .insertGoalEvent(let event): append(event)
        case .putAttributes(_, let changed):
            append(.attributes, of: userID) { for number in changed { $0.append(number: UInt64(number)) } }
        case .takeOver(let other): append(.merge, of: userID) { $0.append(text: other.string) }
        case .noteRemoval(nil): append(.erasure, of: userID) { _ in }
        // The user was merged into an account. The write `takeOver` of the account has already appended the entry.
        case .noteRemoval: break
        // An erasure or a merge consists of several writes, of which only one has an entry.
        case .deleteProfile, .eraseOtherRecords: break
        case .expectNewestDatafile, .putForcedVariation, .deleteForcedVariation, .putTotal, .deleteTotals, .putPeriod,
            .putSeries, .eraseStickyDocuments, .recordAudit:
            break
        }
    }

    /// Appends an entry whose content a closure encodes.
    private mutating func append(
        _ kind: FeedRow.EntryKind, of userID: Identifier, _ content: (inout ProfileRecordEncoder) -> Void
    ) {
        let lengthPosition = begin(kind, of: userID)
        content(&encoder)
        encoder.endCounted(lengthPosition)
    }

    /// Begins an entry; the caller appends the content and then calls ``ProfileRecordEncoder/endCounted(_:)``.
    ///
    /// - Returns: the position of the length of the content.
    private mutating func begin(_ kind: FeedRow.EntryKind, of userID: Identifier) -> Int {
        encoder.append(byte: kind.rawValue)
        encoder.append(text: userID.string)
        return encoder.beginCounted()
    }

    /// Appends the entry of a changed profile: the experiments whose assignment was removed, and the assignments that
    /// are new or changed, as they are encoded in the profile.
    package mutating func append(_ record: ProfileRecord, replacing stored: ProfileRecord?, of userID: Identifier) {
        // Called for each save, so this function avoids a closure, which would retain the records.
        let lengthPosition = begin(.assignments, of: userID)
        defer { encoder.endCounted(lengthPosition) }
        let start = encoder.bytes.count
        // Usually no assignment was removed, so their number is 0.
        encoder.append(number: 0)
        guard let stored else { return encoder.append(contentsOf: record.bytes[record.entriesOffset...]) }
        let removed = record.appendDifference(from: stored, to: &encoder)
        guard !removed.isEmpty else { return }
        // The removed assignments come first, so the content is encoded once more.
        encoder.truncate(to: start)
        encoder.append(number: UInt64(removed.count))
        for experimentID in removed {
            encoder.append(number: UInt64(experimentID.count))
            encoder.append(contentsOf: stored.bytes[experimentID])
        }
        _ = record.appendDifference(from: stored, to: &encoder)
    }

    private mutating func append(_ stored: StoredExposure) {
        let exposure = stored.exposure
        append(.exposure, of: exposure.userID) { content in
            content.append(byte: stored.flags)
            content.append(text: exposure.experimentID.string)
            content.append(text: exposure.experimentKey.string)
            content.append(text: exposure.variationID.string)
            content.append(exposure.happenedAt)
            content.append(text: exposure.sdkKey)
            content.append(number: UInt64(exposure.payload.count))
            content.append(contentsOf: exposure.payload[...])
            content.append(signedNumber: stored.period)
        }
    }

    private mutating func append(_ event: GoalEvent) {
        append(.goal, of: event.userID) { content in
            content.append(byte: event.senderID == nil ? 0 : 1)
            content.append(text: event.goal.string)
            content.append(number: event.value.bitPattern)
            content.append(event.happenedAt)
            content.append(event.receivedAt)
            if let senderID = event.senderID { content.append(text: senderID.string) }
            content.append(text: event.sdkKey)
            content.append(number: UInt64(event.payload.count))
            content.append(contentsOf: event.payload[...])
        }
    }

    // MARK: Erased users

    /// Copies an entry of another row unchanged.
    mutating func append(copying entry: FeedDecoder.Entry, of row: [UInt8]) {
        encoder.append(contentsOf: row[entry.range])
    }

    /// Appends an entry in place of the entry of an erased user. Both have the same number of lines, so that the
    /// positions of later lines do not change.
    mutating func append(erased lines: Int) {
        append(.erased, of: "") { $0.append(number: UInt64(lines)) }
    }
}

extension ProfileRecord {
    /// Compares the encoded assignments of two records in one pass over both. Both are in the order of experiment ids.
    ///
    /// - Parameter encoder: the new and changed assignments of this record are appended here.
    /// - Returns: the experiment ids that this record lacks, as ranges of the bytes of `former`.
    fileprivate func appendDifference(
        from former: ProfileRecord, to encoder: inout ProfileRecordEncoder
    ) -> [Range<Int>] {
        bytes.withUnsafeBytes { bytes in
            former.bytes.withUnsafeBytes { formerBytes in
                var removed: [Range<Int>] = []
                var own = EncodedAssignment(in: bytes, at: entriesOffset)
                /// The position of the next assignment in the former record.
                var formerPosition = former.entriesOffset
                while own.isPresent {
                    let encoded = own.whole(bytes)
                    let rest = UnsafeRawBufferPointer(rebasing: formerBytes[formerPosition...])
                    // Most assignments have not changed. Comparing their bytes saves decoding them a second time.
                    if rest.count >= encoded.count,
                        UnsafeRawBufferPointer(rebasing: rest[..<encoded.count]).hasSameBytes(as: encoded)
                    {
                        formerPosition += encoded.count
                    } else {
                        let other = EncodedAssignment(in: formerBytes, at: formerPosition)
                        if other.isPresent, other.id(formerBytes).precedes(own.id(bytes)) {
                            removed.append(other.experimentID)
                            formerPosition = other.end
                            continue
                        }
                        // The same experiment with another assignment. Otherwise the experiment is new.
                        if other.isPresent, other.id(formerBytes).hasSameBytes(as: own.id(bytes)) {
                            formerPosition = other.end
                        }
                        encoder.append(contentsOf: encoded)
                    }
                    own = EncodedAssignment(in: bytes, at: own.end)
                }
                while case let other = EncodedAssignment(in: formerBytes, at: formerPosition), other.isPresent {
                    removed.append(other.experimentID)
                    formerPosition = other.end
                }
                return removed
            }
        }
    }
}

/// The position of an assignment in the bytes of a ``ProfileRecord``. Only the experiment id and the length are
/// decoded. The bytes are trusted, because they were validated when the record was made.
private struct EncodedAssignment {
    let start: Int
    /// The range of the experiment id's UTF-8 bytes.
    private(set) var experimentID = 0..<0
    /// The position after the assignment; ``start`` if there is no assignment.
    private(set) var end: Int

    /// - Parameter start: the position of the assignment; the end of the bytes if no more assignments follow.
    init(in bytes: UnsafeRawBufferPointer, at start: Int) {
        self.start = start
        end = start
        guard start < bytes.count else { return }
        let flags = bytes[start]
        end = start + 1
        experimentID = text(bytes)
        _ = text(bytes)  // The variation id.
        skipNumber(bytes)  // The time of the assignment.
        skipNumber(bytes)  // The time of the last save.
        if flags & ProfileRecord.expiresFlag != 0 { skipNumber(bytes) }
        if flags & ProfileRecord.layerFlag != 0 { _ = text(bytes) }
    }

    var isPresent: Bool { end > start }

    func whole(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer { .init(rebasing: bytes[start..<end]) }
    func id(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer { .init(rebasing: bytes[experimentID]) }

    /// Advances ``end`` over a text with its length.
    ///
    /// - Returns: the range of the text.
    private mutating func text(_ bytes: UnsafeRawBufferPointer) -> Range<Int> {
        var length = 0
        var shift = 0
        while true {
            let byte = bytes[end]
            end += 1
            length |= Int(byte & 0x7F) << shift
            if byte < 0x80 { break }
            shift += 7
        }
        defer { end += length }
        return end..<end + length
    }

    private mutating func skipNumber(_ bytes: UnsafeRawBufferPointer) {
        while bytes[end] >= 0x80 { end += 1 }
        end += 1
    }
}
