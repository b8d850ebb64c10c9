package import Bucketing

/// Encodes what the writes of rules change about users as entries of the feed: the one place for all stores.
package struct FeedEncoder: Sendable {
    private var encoder = ProfileRecordEncoder(capacity: 0)
    /// The content of one entry; kept for its capacity.
    private var inner = ProfileRecordEncoder(capacity: 0)

    package init() {}

    package var bytes: [UInt8] { encoder.bytes }
    package var isEmpty: Bool { encoder.bytes.isEmpty }

    /// Appends what a write changes, if a reader of the feed can see it. What no reader sees are totals, allocation
    /// periods, variations forced for a test, sticky documents and the audit log.
    package mutating func append(_ write: UserRecords.Write, of userID: Identifier) {
        switch write {
        case .putProfile(let record, let stored): append(record, replacing: stored, of: userID)
        case .putExposure(let stored): append(stored)
        case .insertGoalEvent(let event): append(event)
        case .putAttributes(_, let changed):
            append(.attributes, of: userID) { for number in changed { $0.append(number: UInt64(number)) } }
        case .takeOver(let other): append(.merge, of: userID) { $0.append(text: other.string) }
        case .noteRemoval(let mark):
            // The mark of a merge belongs to the entry of the account.
            if mark == ErasureRules.hash(userID) { append(.erasure, of: userID) { _ in } }
        // Of an erasure or a merge.
        case .deleteProfile, .eraseOtherRecords: break
        case .expectNewestDatafile, .putForcedVariation, .deleteForcedVariation, .putTotal, .deleteTotals, .putPeriod,
            .putSeries, .eraseStickyDocuments, .recordAudit:
            break
        }
    }

    private mutating func append(
        _ kind: FeedEntry.Kind, of userID: Identifier, _ content: (inout ProfileRecordEncoder) -> Void
    ) {
        inner.removeAll()
        content(&inner)
        encoder.append(byte: kind.rawValue)
        encoder.append(text: userID.string)
        encoder.append(number: UInt64(inner.bytes.count))
        encoder.append(contentsOf: inner.bytes[...])
    }

    /// Appends the assignments of a profile that differ from those before, as they are encoded in the profiles.
    package mutating func append(_ record: ProfileRecord, replacing stored: ProfileRecord?, of userID: Identifier) {
        append(.assignments, of: userID) { content in
            guard let stored else {
                content.append(number: 0)
                content.append(contentsOf: record.bytes[record.entriesOffset...])
                return
            }
            let (removed, changed) = record.differences(from: stored)
            content.append(number: UInt64(removed.count))
            for experimentID in removed {
                content.append(number: UInt64(experimentID.count))
                content.append(contentsOf: stored.bytes[experimentID])
            }
            for entry in changed { content.append(contentsOf: record.bytes[entry]) }
        }
    }

    private mutating func append(_ stored: StoredExposure) {
        let exposure = stored.exposure
        append(.exposure, of: exposure.userID) { content in
            content.append(byte: stored.flags)
            content.append(text: exposure.experimentID.string)
            content.append(text: exposure.experimentKey.string)
            content.append(text: exposure.variationID.string)
            content.append(signedNumber: exposure.happenedAt)
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
            content.append(signedNumber: event.happenedAt)
            content.append(signedNumber: event.receivedAt)
            if let senderID = event.senderID { content.append(text: senderID.string) }
            content.append(text: event.sdkKey)
            content.append(number: UInt64(event.payload.count))
            content.append(contentsOf: event.payload[...])
        }
    }

    // MARK: Erased users

    /// Appends an entry of a row as it is.
    mutating func append(copying entry: FeedDecoder.Entry, of row: [UInt8]) {
        encoder.append(contentsOf: row[entry.range])
    }

    /// Appends an entry in place of an erased one.
    mutating func append(erased lines: Int) {
        append(.erased, of: "") { $0.append(number: UInt64(lines)) }
    }
}

extension ProfileRecord {
    /// Compares the encoded entries of two records, both of which are in the order of experiment ids.
    ///
    /// - Returns: the ranges of the experiment ids in `former` that this record lacks, and the ranges of this record's
    ///   entries that `former` lacks.
    fileprivate func differences(from former: ProfileRecord) -> (removed: [Range<Int>], changed: [Range<Int>]) {
        var (removed, changed): ([Range<Int>], [Range<Int>]) = ([], [])
        var (own, other) = (EntryRanges(self), EntryRanges(former))
        var (here, there) = (own.next(), other.next())
        while here != nil || there != nil {
            guard let present = here else {
                if let there { removed.append(there.experimentID) }
                there = other.next()
                continue
            }
            guard let before = there else {
                changed.append(present.range)
                here = own.next()
                continue
            }
            if bytes[present.range] == former.bytes[before.range] {
                (here, there) = (own.next(), other.next())
            } else if bytes[present.experimentID] == former.bytes[before.experimentID] {
                changed.append(present.range)
                (here, there) = (own.next(), other.next())
            } else if bytes[present.experimentID].lexicographicallyPrecedes(former.bytes[before.experimentID]) {
                changed.append(present.range)
                here = own.next()
            } else {
                removed.append(before.experimentID)
                there = other.next()
            }
        }
        return (removed, changed)
    }

    /// Where the entries of a record are in its bytes.
    private struct EntryRanges {
        private var decoder: ProfileRecordDecoder
        private var remaining: Int

        init(_ record: ProfileRecord) {
            decoder = ProfileRecordDecoder(record.bytes, at: record.entriesOffset)
            remaining = record.count
        }

        mutating func next() -> (range: Range<Int>, experimentID: Range<Int>)? {
            guard remaining > 0 else { return nil }
            remaining -= 1
            let start = decoder.position
            // Cannot throw: the bytes were validated when the record was made.
            guard let entry = try? decoder.entry() else { return nil }
            return (start..<decoder.position, entry.experimentID)
        }
    }
}
