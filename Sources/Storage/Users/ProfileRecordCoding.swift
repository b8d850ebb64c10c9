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
    /// The layer of an entry is malformed, or the entry is no override.
    case invalidLayer
}

/// Decodes the values of a ``ProfileRecord`` in sequence. It trusts no byte. The feed uses it, too; see
/// ``FeedDecoder``.
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

    /// Reads a length, and skips so many bytes.
    ///
    /// - Returns: the range of these bytes.
    mutating func text() throws(ProfileRecordDamage) -> Range<Int> {
        guard let length = Int(exactly: try number()) else { throw .numberOutOfRange }
        guard length <= bytes.count - position else { throw .truncated }
        defer { position += length }
        return position..<position + length
    }

    /// Reads an entry.
    ///
    /// - Parameter isBeneath: whether the entry is the underlying assignment of an override, which has no experiment id
    ///   and no layer.
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

    /// The parts of an ``OverrideLayer``; texts are ranges of the bytes.
    struct Layer {
        var author: Range<Int>?
        var reason: Range<Int>?
        var beneath: ProfileRecord.Entry?
    }

    /// Decodes the layer of an entry.
    static func layer(_ range: Range<Int>, of bytes: [UInt8]) throws(ProfileRecordDamage) -> Layer {
        var decoder = ProfileRecordDecoder(bytes, at: range.lowerBound)
        let members = try decoder.byte()
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
    static let version: UInt8 = 1
    /// The version of a record with a layer.
    static let layeredVersion: UInt8 = 2
    static let expiresFlag: UInt8 = 0x80
    static let layerFlag: UInt8 = 0x40
    static let authorFlag: UInt8 = 1
    static let reasonFlag: UInt8 = 2
    static let beneathFlag: UInt8 = 4

    /// Reads the header only.
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

    /// Validates the entries, and the header against them.
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
        guard found == count, Self.storedExpiry(earliest) == Self.storedExpiry(earliestExpiry),
            hasLayers == (bytes[0] == Self.layeredVersion)
        else { throw .wrongHeader }
    }

    /// - Returns: when the underlying assignment expires.
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

/// Encodes the values of a ``ProfileRecord``; the counterpart of `ProfileRecordDecoder`.
struct ProfileRecordEncoder {
    private(set) var bytes: [UInt8] = []

    init(capacity: Int) {
        bytes.reserveCapacity(capacity)
    }

    /// Removes the bytes from a position on.
    mutating func truncate(to count: Int) {
        bytes.removeLast(bytes.count - count)
    }

    /// Begins a part that is preceded by its length, and reserves room for the length.
    ///
    /// - Returns: the position of the length, for ``endCounted(_:)``.
    mutating func beginCounted() -> Int {
        defer {
            bytes.append(0)
            bytes.append(0)
        }
        return bytes.count
    }

    /// Writes the length of the part that began with ``beginCounted()``, in two bytes if they suffice.
    mutating func endCounted(_ place: Int) {
        let length = bytes.count - place - 2
        guard length < 1 << 14 else {
            var encoded = ProfileRecordEncoder(capacity: 10)
            encoded.append(number: UInt64(length))
            return bytes.replaceSubrange(place..<place + 2, with: encoded.bytes)
        }
        bytes[place] = UInt8(truncatingIfNeeded: length) | 0x80
        bytes[place + 1] = UInt8(truncatingIfNeeded: length >> 7)
    }

    mutating func append(contentsOf other: UnsafeRawBufferPointer) {
        bytes.append(contentsOf: other)
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

    mutating func append(_ time: Instant) {
        append(signedNumber: time.milliseconds)
    }

    /// Writes the difference to an earlier time.
    private mutating func append(_ time: Instant, after earlier: Instant) {
        append(signedNumber: time.milliseconds &- earlier.milliseconds)
    }

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
        let flag = assignment.expiresAt == nil ? 0 : ProfileRecord.expiresFlag
        append(byte: assignment.source.rawValue | flag | (assignment.layer == nil ? 0 : ProfileRecord.layerFlag))
        if let experimentID { append(text: experimentID.string) }
        append(text: assignment.variationID.string)
        append(assignment.assignedAt)
        append(assignment.updatedAt, after: assignment.assignedAt)
        if let expiresAt = assignment.expiresAt { append(expiresAt, after: assignment.updatedAt) }
        if let layer = assignment.layer { append(layer) }
    }

    private mutating func append(_ layer: OverrideLayer) {
        var encoder = ProfileRecordEncoder(capacity: 64)
        encoder.append(
            byte: (layer.author == nil ? 0 : ProfileRecord.authorFlag)
                | (layer.reason == nil ? 0 : ProfileRecord.reasonFlag)
                | (layer.beneath == nil ? 0 : ProfileRecord.beneathFlag))
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

    /// Returns an earliest expiry in the form of the header, where 0 means "never". Times up to 1970 therefore become
    /// 1.
    static func storedExpiry(_ expiry: Instant?) -> Int64 {
        expiry.map { max(1, $0.milliseconds) } ?? 0
    }
}
