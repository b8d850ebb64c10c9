/// Reads the values of a ``ProfileRecord`` one after the other, trusting no byte.
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

    /// Seven bits a byte, the lowest first; bit 7 says that another byte follows.
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
