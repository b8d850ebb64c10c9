import Bucketing

/// Why bytes are not a ``ProfileRecord``.
public enum ProfileRecordDamage: Error, Hashable, Sendable {
    /// The version byte is unknown.
    case unknownVersion(UInt8)
    /// The bytes end within a value.
    case truncated
    /// A number exceeds 64 bits, or a count or length exceeds what this machine can address.
    case numberOutOfRange
    /// The source byte of an entry is not a valid ``Assignment/Source``.
    case unknownSource(UInt8)
    /// An id is not UTF-8.
    case invalidText
    /// Experiment ids are not in ascending byte order.
    case unordered
    /// The header contradicts the entries.
    case wrongHeader
}

/// Decodes the values of a ``ProfileRecord`` in sequence. It trusts no byte.
struct ProfileRecordDecoder {
    private let bytes: [UInt8]
    private(set) var position: Int

    init(_ bytes: [UInt8], at position: Int = 0) {
        self.bytes = bytes
        self.position = position
    }

    var isAtEnd: Bool { position == bytes.count }

    mutating func byte() throws(ProfileRecordDamage) -> UInt8 {
        guard position < bytes.count else { throw .truncated }
        defer { position += 1 }
        return bytes[position]
    }

    /// Reads seven bits per byte, lowest first; bit 7 is set if another byte follows.
    mutating func number() throws(ProfileRecordDamage) -> UInt64 {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while true {
            let byte = try byte()
            guard shift < 63 || byte <= 1 else { throw .numberOutOfRange }
            value |= UInt64(byte & 0x7F) << shift
            if byte < 0x80 { return value }
            shift += 7
        }
    }

    mutating func signedNumber() throws(ProfileRecordDamage) -> Int64 {
        let value = try number()
        return Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
    }

    mutating func text() throws(ProfileRecordDamage) -> Range<Int> {
        guard let length = Int(exactly: try number()) else { throw .numberOutOfRange }
        guard length <= bytes.count - position else { throw .truncated }
        defer { position += length }
        return position..<position + length
    }

    mutating func entry() throws(ProfileRecordDamage) -> ProfileRecord.Entry {
        let sourceAndFlag = try byte()
        guard let source = Assignment.Source(rawValue: sourceAndFlag & 0x7F) else {
            throw .unknownSource(sourceAndFlag & 0x7F)
        }
        let experimentID = try text()
        let variationID = try text()
        let assignedAt = try signedNumber()
        let updatedAt = assignedAt &+ (try signedNumber())
        let expires = sourceAndFlag & ProfileRecord.expiresFlag != 0
        let expiresAt = expires ? updatedAt &+ (try signedNumber()) : nil
        return ProfileRecord.Entry(
            experimentID: experimentID, variationID: variationID, source: source,
            assignedAt: assignedAt, updatedAt: updatedAt, expiresAt: expiresAt
        )
    }
}

extension ProfileRecord {
    static let version: UInt8 = 1
    static let expiresFlag: UInt8 = 0x80

    init(header bytes: [UInt8]) throws(ProfileRecordDamage) {
        var decoder = ProfileRecordDecoder(bytes)
        let version = try decoder.byte()
        guard version == Self.version else { throw .unknownVersion(version) }
        guard let count = Int(exactly: try decoder.number()), let expiry = Timestamp(exactly: try decoder.number())
        else { throw .numberOutOfRange }
        self.init(
            bytes: bytes, count: count, earliestExpiry: expiry == 0 ? nil : expiry, entriesOffset: decoder.position
        )
    }

    func checkEntries() throws(ProfileRecordDamage) {
        var decoder = ProfileRecordDecoder(bytes, at: entriesOffset)
        var found = 0
        var earliest: Timestamp?
        var former: Range<Int>?
        while !decoder.isAtEnd {
            let entry = try decoder.entry()
            guard isText(entry.experimentID), isText(entry.variationID) else { throw .invalidText }
            if let former, !bytes[former].lexicographicallyPrecedes(bytes[entry.experimentID]) { throw .unordered }
            former = entry.experimentID
            if let expiresAt = entry.expiresAt { earliest = min(earliest ?? expiresAt, expiresAt) }
            found += 1
        }
        guard found == count, Self.storedExpiry(earliest) == Self.storedExpiry(earliestExpiry) else {
            throw .wrongHeader
        }
    }

    private func isText(_ range: Range<Int>) -> Bool {
        bytes[range].allSatisfy { $0 < 0x80 } || String(validating: bytes[range], as: UTF8.self) != nil
    }
}

/// Encodes the values of a ``ProfileRecord``; the counterpart of `ProfileRecordDecoder`.
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
    /// - Parameter entries: in the byte order of experiment ids, without duplicates.
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

    /// The header's form of an earliest expiry. 0 means "never", so that times up to 1970 become 1.
    static func storedExpiry(_ expiry: Timestamp?) -> Timestamp {
        expiry.map { max(1, $0) } ?? 0
    }
}
