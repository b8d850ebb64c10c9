import Bucketing
import Chronology

/// The reason for which bytes are not a ``ProfileRecord``.
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
    /// The layer of an entry is malformed, or an entry that is not an override has a layer.
    case invalidLayer
}

/// Decodes the values of a ``ProfileRecord`` in sequence. Every byte is checked. ``FeedDecoder`` decodes the entries of
/// the feed with it.
struct ProfileRecordDecoder {
    private let bytes: [UInt8]
    /// The position of the next value.
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

    /// Reads a number of variable length ("varint"). Each byte has seven bits of the number, lowest first, and bit 7 is
    /// set if another byte follows.
    mutating func number() throws(ProfileRecordDamage) -> UInt64 {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while true {
            let byte = try byte()
            // The tenth byte has only the highest of the 64 bits.
            guard shift < 63 || byte <= 1 else { throw .numberOutOfRange }
            value |= UInt64(byte & 0x7F) << shift
            if byte < 0x80 { return value }
            shift += 7
        }
    }

    /// Reads a number in zigzag form: 0, -1, 1, -2… are stored as 0, 1, 2, 3…
    mutating func signedNumber() throws(ProfileRecordDamage) -> Int64 {
        let value = try number()
        return Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
    }

    mutating func instant() throws(ProfileRecordDamage) -> Instant {
        Instant(milliseconds: try signedNumber())
    }

    /// Reads the difference to an earlier time.
    private mutating func instant(after time: Instant) throws(ProfileRecordDamage) -> Instant {
        Instant(milliseconds: time.milliseconds &+ (try signedNumber()))
    }

    /// Reads a length, and skips that many bytes.
    ///
    /// - Returns: the range of the skipped bytes.
    mutating func text() throws(ProfileRecordDamage) -> Range<Int> {
        guard let length = Int(exactly: try number()) else { throw .numberOutOfRange }
        guard length <= bytes.count - position else { throw .truncated }
        defer { position += length }
        return position..<position + length
    }

    /// Reads an entry.
    ///
    /// - Parameter isBeneath: whether the entry is the underlying assignment of an override. Such an entry has no
    ///   experiment id and no layer.
    mutating func entry(isBeneath: Bool = false) throws(ProfileRecordDamage) -> ProfileRecord.Entry {
        let sourceAndFlags = try byte()
        let number = sourceAndFlags & ~(ProfileRecord.expiresFlag | ProfileRecord.layerFlag)
        guard let source = Assignment.Source(rawValue: number) else { throw .unknownSource(number) }
        let experimentID = isBeneath ? position..<position : try text()
        let variationID = try text()
        let assignedAt = try instant()
        let updatedAt = try instant(after: assignedAt)
        let expires = sourceAndFlags & ProfileRecord.expiresFlag != 0
        let expiresAt = expires ? try instant(after: updatedAt) : nil
        var layer = position..<position
        if sourceAndFlags & ProfileRecord.layerFlag != 0 {
            layer = try text()
            guard !layer.isEmpty else { throw .invalidLayer }
        }
        return ProfileRecord.Entry(
            experimentID: experimentID, variationID: variationID, source: source,
            assignedAt: assignedAt, updatedAt: updatedAt, expiresAt: expiresAt, layer: layer
        )
    }

    /// The parts of an ``OverrideLayer``. Texts are ranges of the bytes.
    struct Layer {
        var author: Range<Int>?
        var reason: Range<Int>?
        var beneath: ProfileRecord.Entry?
    }

    /// Decodes the layer of an entry.
    static func layer(_ range: Range<Int>, of bytes: [UInt8]) throws(ProfileRecordDamage) -> Layer {
        var decoder = ProfileRecordDecoder(bytes, at: range.lowerBound)
        let members = try decoder.byte()
        // Three bits, of which at least one is set: a layer without members is not written.
        guard (1...7).contains(members) else { throw .invalidLayer }
        var layer = Layer()
        if members & ProfileRecord.authorFlag != 0 { layer.author = try decoder.text() }
        if members & ProfileRecord.reasonFlag != 0 { layer.reason = try decoder.text() }
        if members & ProfileRecord.beneathFlag != 0 {
            let beneath = try decoder.entry(isBeneath: true)
            guard beneath.source != .override, beneath.layer.isEmpty else { throw .invalidLayer }
            layer.beneath = beneath
        }
        guard decoder.position == range.upperBound else { throw .invalidLayer }
        return layer
    }
}

extension ProfileRecord {
    /// The version of a record without layers.
    static let version: UInt8 = 1
    /// The version of a record with a layer.
    static let layeredVersion: UInt8 = 2
    /// The flag in the first byte of an entry that expires.
    static let expiresFlag: UInt8 = 0x80
    /// The flag in the first byte of an entry that has a layer.
    static let layerFlag: UInt8 = 0x40
    /// The flag in the first byte of a layer that has an author.
    static let authorFlag: UInt8 = 1
    /// The flag in the first byte of a layer that has a reason.
    static let reasonFlag: UInt8 = 2
    /// The flag in the first byte of a layer that covers an assignment.
    static let beneathFlag: UInt8 = 4

    /// Reads the header and trusts the entries; see ``checkEntries()``.
    init(header bytes: [UInt8]) throws(ProfileRecordDamage) {
        var decoder = ProfileRecordDecoder(bytes)
        let version = try decoder.byte()
        guard version == Self.version || version == Self.layeredVersion else { throw .unknownVersion(version) }
        guard let count = Int(exactly: try decoder.number()), let expiry = Int64(exactly: try decoder.number())
        else { throw .numberOutOfRange }
        self.init(
            bytes: bytes, count: count, earliestExpiry: expiry == 0 ? nil : Instant(milliseconds: expiry),
            entriesOffset: decoder.position
        )
    }

    /// Validates the entries, and whether the header agrees with the entries.
    func checkEntries() throws(ProfileRecordDamage) {
        var decoder = ProfileRecordDecoder(bytes, at: entriesOffset)
        var found = 0
        var earliest: Instant?
        var former: Range<Int>?
        var hasLayers = false
        while !decoder.isAtEnd {
            let entry = try decoder.entry()
            guard isText(entry.experimentID), isText(entry.variationID) else { throw .invalidText }
            if !entry.layer.isEmpty {
                hasLayers = true
                if let expiresAt = try checkLayer(of: entry) { earliest = min(earliest ?? expiresAt, expiresAt) }
            }
            if let former, !bytes[former].lexicographicallyPrecedes(bytes[entry.experimentID]) { throw .unordered }
            former = entry.experimentID
            if let expiresAt = entry.expiresAt { earliest = min(earliest ?? expiresAt, expiresAt) }
            found += 1
        }
        let isVersionRight = hasLayers == (bytes[0] == Self.layeredVersion)
        let isExpiryRight = Self.storedExpiry(earliest) == Self.storedExpiry(earliestExpiry)
        guard found == count, isExpiryRight, isVersionRight else { throw .wrongHeader }
    }

    /// Validates the layer of an override.
    ///
    /// - Returns: when the underlying assignment expires; `nil` if never, or if there is none.
    private func checkLayer(of entry: Entry) throws(ProfileRecordDamage) -> Instant? {
        guard entry.source == .override else { throw .invalidLayer }
        let layer = try ProfileRecordDecoder.layer(entry.layer, of: bytes)
        for text in [layer.author, layer.reason, layer.beneath?.variationID] {
            if let text, !isText(text) { throw .invalidText }
        }
        return layer.beneath?.expiresAt
    }

    /// Whether bytes are UTF-8.
    private func isText(_ range: Range<Int>) -> Bool {
        bytes[range].allSatisfy { $0 < 0x80 } || String(validating: bytes[range], as: UTF8.self) != nil
    }
}
