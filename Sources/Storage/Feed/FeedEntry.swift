public import Bucketing
public import Chronology

/// A change of one user by a transaction.
///
/// ```
/// kind      1 byte, ``Kind``
/// user id   varint length, UTF-8; empty if the entry was erased
/// content   varint length and that many bytes, by kind:
///     erased        varint number of lines
///     assignments varint number of removed assignments, the experiment id of each as varint length and UTF-8; then
///                   the changed assignments as in ``ProfileRecord``
///     exposure, goal, attributes, merge   their members in order; see ``FeedEncoder``
///     erasure       nothing
/// ```
///
/// A row of the feed has entries one after the other. A reader sees each as one or more lines.
public struct FeedEntry: Sendable {
    /// How an entry is stored.
    enum Kind: UInt8 {
        case erased = 0
        case assignments = 1
        case exposure = 2
        case goal = 3
        case attributes = 4
        case merge = 5
        case erasure = 6
    }

    public enum Change: Sendable {
        /// The assignment in an experiment after the change; `nil` if it was removed.
        case assignment(experimentID: Identifier, Assignment?)
        /// The user got a profile without assignments.
        case emptyProfile
        /// The exposure to an experiment after the change; its number is not set.
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

/// A row of the feed: the changes of one transaction, or a part of them.
public struct FeedRow: Sendable {
    /// Increases with each transaction. Of two transactions about one user, the later one has the greater number.
    public let number: Int64
    public let recordedAt: Instant
    /// Encoded ``FeedEntry``s.
    public let entries: [UInt8]

    public init(number: Int64, recordedAt: Instant, entries: [UInt8]) {
        self.number = number
        self.recordedAt = recordedAt
        self.entries = entries
    }

    /// Decodes the lines of the row in order. The position of a line never changes.
    ///
    /// - Returns: `nil` for a line whose user has been erased since.
    /// - Throws: ``StorageError/unavailable(reason:)`` if the row is damaged, or of a newer release.
    public func lines() throws(StorageError) -> [FeedEntry?] {
        var lines: [FeedEntry?] = []
        try forEachEntry { entry, decoder throws(ProfileRecordDamage) in
            try decoder.append(entry, to: &lines)
        }
        return lines
    }

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

/// Decodes the entries of a row. It trusts no byte.
struct FeedDecoder {
    /// An entry whose content is not decoded yet.
    struct Entry {
        let kind: FeedEntry.Kind
        let userID: Identifier
        /// The range of the whole entry in the row.
        let range: Range<Int>
        let content: Range<Int>
    }

    private let bytes: [UInt8]
    private var decoder: ProfileRecordDecoder

    init(_ bytes: [UInt8]) {
        self.bytes = bytes
        decoder = ProfileRecordDecoder(bytes)
    }

    /// Returns the next entry; `nil` at the end.
    mutating func next() throws(ProfileRecordDamage) -> Entry? {
        guard !decoder.isAtEnd else { return nil }
        let start = decoder.position
        let number = try decoder.byte()
        guard let kind = FeedEntry.Kind(rawValue: number) else { throw .unknownVersion(number) }
        let userID = Self.text(try decoder.text(), of: bytes)
        let content = try decoder.text()
        return Entry(kind: kind, userID: userID, range: start..<decoder.position, content: content)
    }

    private static func text(_ range: Range<Int>, of bytes: [UInt8]) -> Identifier {
        Identifier(String(decoding: bytes[range], as: UTF8.self))
    }

    /// Returns the user whom an entry merges into another; `nil` if the entry is not a merge.
    func mergedUser(_ entry: Entry) throws(ProfileRecordDamage) -> Identifier? {
        guard entry.kind == .merge else { return nil }
        var content = ProfileRecordDecoder(bytes, at: entry.content.lowerBound)
        return Self.text(try content.text(), of: bytes)
    }

    /// Returns the number of lines of an entry.
    func lineCount(_ entry: Entry) throws(ProfileRecordDamage) -> Int {
        var lines: [FeedEntry?] = []
        try append(entry, to: &lines)
        return lines.count
    }

    func append(_ entry: Entry, to lines: inout [FeedEntry?]) throws(ProfileRecordDamage) {
        var content = ProfileRecordDecoder(bytes, at: entry.content.lowerBound)
        func add(_ change: FeedEntry.Change) {
            lines.append(FeedEntry(userID: entry.userID, change: change))
        }
        func text() throws(ProfileRecordDamage) -> Identifier { Self.text(try content.text(), of: bytes) }
        func bounded() throws(ProfileRecordDamage) -> Int {
            // A greater number is damage: each line takes at least one byte of a row.
            guard let count = Int32(exactly: try content.number()) else { throw .numberOutOfRange }
            return Int(count)
        }
        switch entry.kind {
        case .erased: lines += Array(repeating: nil, count: try bounded())
        case .assignments:
            let count = lines.count
            for _ in 0..<(try bounded()) { add(.assignment(experimentID: try text(), nil)) }
            // The ids of entries are ranges of the row.
            let row = ProfileRecord(bytes: bytes, count: 0, earliestExpiry: nil, entriesOffset: 0)
            while content.position < entry.content.upperBound {
                let assignment = try content.entry()
                add(.assignment(experimentID: row.experimentID(of: assignment), row.assignment(of: assignment)))
            }
            if lines.count == count { add(.emptyProfile) }
        case .exposure:
            let flags = try content.byte()
            let exposure = Exposure(
                userID: entry.userID, experimentID: try text(), experimentKey: try text(), variationID: try text(),
                happenedAt: try content.instant(), isChosen: flags & StoredExposure.chosen != 0,
                sdkKey: try text().string, payload: Array(bytes[try content.text()]))
            let period = try content.signedNumber()
            add(
                .exposure(
                    StoredExposure(
                        number: 0, exposure: exposure,
                        hasMultipleVariations: flags & StoredExposure.multipleVariations != 0, period: period)))
        case .goal:
            let hasSenderID = try content.byte() != 0
            add(
                .goal(
                    GoalEvent(
                        userID: entry.userID, goal: try text(), value: Double(bitPattern: try content.number()),
                        happenedAt: try content.instant(), receivedAt: try content.instant(),
                        senderID: hasSenderID ? try text() : nil, sdkKey: try text().string,
                        payload: Array(bytes[try content.text()]))))
        case .attributes:
            var numbers: [UInt32] = []
            while content.position < entry.content.upperBound {
                guard let number = UInt32(exactly: try content.number()) else { throw .numberOutOfRange }
                numbers.append(number)
            }
            add(.attributes(numbers))
        case .merge: add(.merge(from: try text()))
        case .erasure: add(.erasure)
        }
        guard content.position == entry.content.upperBound || entry.kind == .erasure else { throw .truncated }
    }
}
