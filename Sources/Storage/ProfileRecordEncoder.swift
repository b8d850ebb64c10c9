import Bucketing

/// Writes the values of a ``ProfileRecord``; the counterpart of ``ProfileRecordDecoder``.
struct ProfileRecordEncoder {
    private(set) var bytes: [UInt8] = []

    init(capacity: Int) {
        bytes.reserveCapacity(capacity)
    }

    mutating func append(byte: UInt8) {
        bytes.append(byte)
    }

    mutating func append(number: UInt64) {
        var rest = number
        while rest >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(truncatingIfNeeded: rest))
    }

    mutating func append(signedNumber number: Int64) {
        append(number: UInt64(bitPattern: (number << 1) ^ (number >> 63)))
    }

    mutating func append(text: Identifier) {
        append(number: UInt64(text.string.utf8.count))
        bytes.append(contentsOf: text.string.utf8)
    }

    mutating func append(_ assignment: Assignment, in experimentID: Identifier) {
        let flag = assignment.expiresAt == nil ? 0 : ProfileRecord.expiresFlag
        append(byte: assignment.source.rawValue | flag)
        append(text: experimentID)
        append(text: assignment.variationID)
        append(signedNumber: assignment.assignedAt)
        append(signedNumber: assignment.updatedAt &- assignment.assignedAt)
        if let expiresAt = assignment.expiresAt {
            append(signedNumber: expiresAt &- assignment.updatedAt)
        }
    }
}

extension ProfileRecord {
    /// - Parameter entries: ascending by experiment id, each id once.
    init(ascending entries: [ProfileDraft.Entry]) {
        let earliest = Self.storedExpiry(entries.lazy.compactMap(\.assignment.expiresAt).min())
        let texts = entries.reduce(0) {
            $0 + $1.experimentID.string.utf8.count + $1.assignment.variationID.string.utf8.count
        }
        var encoder = ProfileRecordEncoder(capacity: 16 + texts + 24 * entries.count)
        encoder.append(byte: Self.version)
        encoder.append(number: UInt64(entries.count))
        encoder.append(number: UInt64(earliest))
        let offset = encoder.bytes.count
        for entry in entries {
            encoder.append(entry.assignment, in: entry.experimentID)
        }
        self.init(
            bytes: encoder.bytes, count: entries.count, earliestExpiry: earliest == 0 ? nil : earliest,
            entriesOffset: offset
        )
    }

    /// The header's form of an earliest expiry: 0 is "never", and what is at or before 1970 is as good as 1.
    static func storedExpiry(_ expiry: Timestamp?) -> Timestamp {
        expiry.map { max(1, $0) } ?? 0
    }
}
