import Bucketing

/// Decodes the entries of a ``FeedRow``; the counterpart of ``FeedEncoder``. Every byte is checked, because the row may
/// be damaged.
///
/// ``next()`` iterates over the entries without decoding their content. ``append(_:to:)`` decodes the lines of one
/// entry.
struct FeedDecoder {
    /// An entry whose content is not decoded yet.
    struct Entry {
        let kind: FeedRow.EntryKind
        let userID: Identifier
        /// The range of the whole entry in the row.
        let range: Range<Int>
        /// The range of the content in the row.
        let content: Range<Int>
    }

    /// The bytes of the whole row.
    private let bytes: [UInt8]
    /// Is at the beginning of the next entry.
    private var decoder: ProfileRecordDecoder

    /// - Parameter bytes: the ``FeedRow/entries`` of a row.
    init(_ bytes: [UInt8]) {
        self.bytes = bytes
        decoder = ProfileRecordDecoder(bytes)
    }

    /// Returns the next entry; `nil` at the end.
    ///
    /// - Throws: ``ProfileRecordDamage`` if the row ends within the entry, or if the entry is of an unknown kind.
    mutating func next() throws(ProfileRecordDamage) -> Entry? {
        guard !decoder.isAtEnd else { return nil }
        let start = decoder.position
        let number = try decoder.byte()
        guard let kind = FeedRow.EntryKind(rawValue: number) else { throw .unknownVersion(number) }
        let userID = Self.text(try decoder.text(), of: bytes)
        let content = try decoder.text()
        return Entry(kind: kind, userID: userID, range: start..<decoder.position, content: content)
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

    /// Decodes the lines of an entry, and appends them. A line of an erased user is `nil`.
    func append(_ entry: Entry, to lines: inout [FeedEntry?]) throws(ProfileRecordDamage) {
        var content = ProfileRecordDecoder(bytes, at: entry.content.lowerBound)
        func add(_ change: FeedEntry.Change) {
            lines.append(FeedEntry(userID: entry.userID, change: change))
        }
        switch entry.kind {
        case .erased: lines += Array(repeating: nil, count: try count(&content))
        case .assignments: for change in try assignments(in: entry, &content) { add(change) }
        case .exposure: add(.exposure(try exposure(of: entry.userID, &content)))
        case .goal: add(.goal(try goalEvent(of: entry.userID, &content)))
        case .attributes: add(.attributes(try numbers(in: entry, &content)))
        case .merge: add(.merge(from: try text(&content)))
        case .erasure: add(.erasure)
        }
        // An erasure has no content. If a damaged row has some, it is ignored.
        guard content.position == entry.content.upperBound || entry.kind == .erasure else { throw .truncated }
    }

    /// Decodes the removed and the changed assignments of an entry. An entry without either reports that the user got
    /// an empty profile.
    private func assignments(
        in entry: Entry, _ content: inout ProfileRecordDecoder
    ) throws(ProfileRecordDamage) -> [FeedEntry.Change] {
        var changes: [FeedEntry.Change] = []
        for _ in 0..<(try count(&content)) { changes.append(.assignment(experimentID: try text(&content), nil)) }
        // The ids of an encoded assignment are ranges in the bytes of a record. The row takes the place of that record.
        let row = ProfileRecord(bytes: bytes, count: 0, earliestExpiry: nil, entriesOffset: 0)
        while content.position < entry.content.upperBound {
            let assignment = try content.entry()
            changes.append(
                .assignment(experimentID: row.experimentID(of: assignment), row.assignment(of: assignment)))
        }
        return changes.isEmpty ? [.emptyProfile] : changes
    }

    /// Decodes the numbers of the changed attributes.
    private func numbers(
        in entry: Entry, _ content: inout ProfileRecordDecoder
    ) throws(ProfileRecordDamage) -> [UInt32] {
        var numbers: [UInt32] = []
        while content.position < entry.content.upperBound {
            guard let number = UInt32(exactly: try content.number()) else { throw .numberOutOfRange }
            numbers.append(number)
        }
        return numbers
    }

    private func exposure(
        of userID: Identifier, _ content: inout ProfileRecordDecoder
    ) throws(ProfileRecordDamage) -> StoredExposure {
        let flags = try content.byte()
        let exposure = Exposure(
            userID: userID, experimentID: try text(&content), experimentKey: try text(&content),
            variationID: try text(&content), happenedAt: try content.instant(),
            isChosen: flags & StoredExposure.chosen != 0, sdkKey: try text(&content).string,
            payload: Array(bytes[try content.text()]))
        return StoredExposure(
            number: 0, exposure: exposure, hasMultipleVariations: flags & StoredExposure.multipleVariations != 0,
            period: try content.signedNumber())
    }

    private func goalEvent(
        of userID: Identifier, _ content: inout ProfileRecordDecoder
    ) throws(ProfileRecordDamage) -> GoalEvent {
        let hasSenderID = try content.byte() != 0
        return GoalEvent(
            userID: userID, goal: try text(&content), value: Double(bitPattern: try content.number()),
            happenedAt: try content.instant(), receivedAt: try content.instant(),
            senderID: hasSenderID ? try text(&content) : nil, sdkKey: try text(&content).string,
            payload: Array(bytes[try content.text()]))
    }

    private static func text(_ range: Range<Int>, of bytes: [UInt8]) -> Identifier {
        Identifier(String(decoding: bytes[range], as: UTF8.self))
    }

    private func text(_ content: inout ProfileRecordDecoder) throws(ProfileRecordDamage) -> Identifier {
        Self.text(try content.text(), of: bytes)
    }

    /// Reads a number of lines. A number beyond the range of `Int32` is damage: no row has so many lines.
    private func count(_ content: inout ProfileRecordDecoder) throws(ProfileRecordDamage) -> Int {
        guard let count = Int32(exactly: try content.number()) else { throw .numberOutOfRange }
        return Int(count)
    }
}
