import Bucketing
import Chronology

/// Encodes the values of a ``ProfileRecord``; the counterpart of ``ProfileRecordDecoder``. ``FeedEncoder`` encodes the
/// entries of the feed with it.
struct ProfileRecordEncoder {
    private(set) var bytes: [UInt8] = []

    /// - Parameter capacity: the number of bytes to reserve.
    init(capacity: Int) {
        bytes.reserveCapacity(capacity)
    }

    /// Removes the bytes from a position on.
    mutating func truncate(to count: Int) {
        bytes.removeLast(bytes.count - count)
    }

    /// The number of bytes that ``beginCounted()`` reserves for a length.
    private static let reservedForLength = 2
    /// The smallest length that needs more bytes. Each of the two bytes has seven bits of the length.
    private static let lengthLimit = 1 << 14

    /// Begins a part that is preceded by its length, and reserves room for the length.
    ///
    /// - Returns: the position of the length, for ``endCounted(_:)``.
    mutating func beginCounted() -> Int {
        defer { for _ in 0..<Self.reservedForLength { bytes.append(0) } }
        return bytes.count
    }

    /// Writes the length of the part that began with ``beginCounted()``. The length takes exactly two bytes if they
    /// suffice, even if one byte would: the part then does not have to be moved.
    ///
    /// - Parameter lengthPosition: the result of ``beginCounted()``.
    mutating func endCounted(_ lengthPosition: Int) {
        let length = bytes.count - lengthPosition - Self.reservedForLength
        guard length < Self.lengthLimit else {
            var encoded = ProfileRecordEncoder(capacity: 10)
            encoded.append(number: UInt64(length))
            let reserved = lengthPosition..<lengthPosition + Self.reservedForLength
            return bytes.replaceSubrange(reserved, with: encoded.bytes)
        }
        bytes[lengthPosition] = UInt8(truncatingIfNeeded: length) | 0x80
        bytes[lengthPosition + 1] = UInt8(truncatingIfNeeded: length >> 7)
    }

    mutating func append(contentsOf other: UnsafeRawBufferPointer) {
        bytes.append(contentsOf: other)
    }

    mutating func append(byte: UInt8) {
        bytes.append(byte)
    }

    /// Writes a number of variable length; see ``ProfileRecordDecoder/number()``.
    mutating func append(number: UInt64) {
        var rest = number
        while rest >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(truncatingIfNeeded: rest))
    }

    /// Writes a number in zigzag form; see ``ProfileRecordDecoder/signedNumber()``.
    mutating func append(signedNumber number: Int64) {
        append(number: UInt64(bitPattern: (number << 1) ^ (number >> 63)))
    }

    mutating func append(_ time: Instant) {
        append(signedNumber: time.milliseconds)
    }

    /// Writes the difference to an earlier time.
    private mutating func append(_ time: Instant, after earlier: Instant) {
        append(signedNumber: time.milliseconds &- earlier.milliseconds)
    }

    /// Writes the length and the UTF-8 of a text.
    mutating func append(text: String) {
        append(number: UInt64(text.utf8.count))
        bytes.append(contentsOf: text.utf8)
    }

    mutating func append(contentsOf other: ArraySlice<UInt8>) {
        bytes.append(contentsOf: other)
    }

    /// Writes an entry.
    ///
    /// - Parameter experimentID: `nil` for the underlying assignment of an override.
    mutating func append(_ assignment: Assignment, in experimentID: Identifier?) {
        let expiresFlag = assignment.expiresAt == nil ? 0 : ProfileRecord.expiresFlag
        let layerFlag = assignment.layer == nil ? 0 : ProfileRecord.layerFlag
        append(byte: assignment.source.rawValue | expiresFlag | layerFlag)
        if let experimentID { append(text: experimentID.string) }
        append(text: assignment.variationID.string)
        append(assignment.assignedAt)
        append(assignment.updatedAt, after: assignment.assignedAt)
        if let expiresAt = assignment.expiresAt { append(expiresAt, after: assignment.updatedAt) }
        if let layer = assignment.layer { append(layer) }
    }

    /// Writes the layer of an override. It is encoded separately, because its length comes first.
    private mutating func append(_ layer: OverrideLayer) {
        var encoder = ProfileRecordEncoder(capacity: 64)
        var members: UInt8 = 0
        if layer.author != nil { members |= ProfileRecord.authorFlag }
        if layer.reason != nil { members |= ProfileRecord.reasonFlag }
        if layer.beneath != nil { members |= ProfileRecord.beneathFlag }
        encoder.append(byte: members)
        if let author = layer.author { encoder.append(text: author) }
        if let reason = layer.reason { encoder.append(text: reason) }
        if let beneath = layer.beneath { encoder.append(beneath, in: nil) }
        append(number: UInt64(encoder.bytes.count))
        bytes += encoder.bytes
    }
}

extension ProfileRecord {
    /// Encodes entries.
    ///
    /// - Parameter entries: in the byte order of experiment ids, without duplicates.
    init(ascending entries: [ProfileDraft.Entry]) {
        let earliest = Self.storedExpiry(entries.lazy.compactMap(\.assignment.earliestExpiry).min())
        let hasLayers = entries.contains { $0.assignment.layer != nil }
        let texts = entries.reduce(0) {
            $0 + $1.experimentID.string.utf8.count + $1.assignment.variationID.string.utf8.count
        }
        // The header takes at most 16 bytes in practice, and an entry takes about 24 in addition to its texts.
        var encoder = ProfileRecordEncoder(capacity: 16 + texts + 24 * entries.count)
        encoder.append(byte: hasLayers ? Self.layeredVersion : Self.version)
        encoder.append(number: UInt64(entries.count))
        encoder.append(number: UInt64(earliest))
        let offset = encoder.bytes.count
        for entry in entries {
            encoder.append(entry.assignment, in: entry.experimentID)
        }
        self.init(
            bytes: encoder.bytes, count: entries.count,
            earliestExpiry: earliest == 0 ? nil : Instant(milliseconds: earliest), entriesOffset: offset
        )
    }

    /// Returns an earliest expiry in the form of the header, in milliseconds since 1970. 0 means "never" there, so a
    /// time up to 1970 becomes 1.
    static func storedExpiry(_ expiry: Instant?) -> Int64 {
        expiry.map { max(1, $0.milliseconds) } ?? 0
    }
}
