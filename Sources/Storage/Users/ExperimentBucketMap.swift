public import Bucketing

/// The experiment bucket map of a profile, as Optimizely SDKs save it (`experiment_bucket_map`): a variation for each
/// experiment, without metadata.
public struct ExperimentBucketMap: Sendable, Hashable {
    public struct Entry: Sendable, Hashable {
        public let experimentID: Identifier
        public let variationID: Identifier

        public init(experimentID: Identifier, variationID: Identifier) {
            self.experimentID = experimentID
            self.variationID = variationID
        }
    }

    /// One entry per experiment, in the byte order of experiment ids.
    public let entries: [Entry]

    public static let empty = ExperimentBucketMap(checked: [])

    /// - Parameter entries: in any order. If an experiment has several entries, the last one counts.
    public init(_ entries: [Entry]) {
        if Self.isAscending(entries) {
            self.entries = entries
            return
        }
        let sorted = Self.sorted(entries)
        if Self.isAscending(sorted) {
            self.entries = sorted
            return
        }
        // Some experiment has several entries.
        let last = Dictionary(entries.map { ($0.experimentID, $0) }, uniquingKeysWith: { $1 })
        self.entries = last.values.sorted { $0.experimentID < $1.experimentID }
    }

    /// - Parameter entries: in the byte order of experiment ids, without duplicates.
    private init(checked entries: [Entry]) {
        self.entries = entries
    }

    /// Sorts by experiment id. Comparing texts takes many times as long as comparing numbers. The sort therefore
    /// compares the 16 bytes after the common prefix of all ids as numbers, and whole ids only if these bytes are
    /// equal.
    private static func sorted(_ entries: [Entry]) -> [Entry] {
        let start = commonPrefixLength(entries)
        let keys = entries.enumerated().map { (key: sortKey($1.experimentID, from: start), index: $0) }
        return keys.sorted { left, right in
            if left.key != right.key { return left.key < right.key }
            return entries[left.index].experimentID < entries[right.index].experimentID
        }.map { entries[$0.index] }
    }

    /// The number of bytes with which all ids begin.
    private static func commonPrefixLength(_ entries: [Entry]) -> Int {
        let first = Array(entries.first?.experimentID.string.utf8 ?? "".utf8)
        var length = first.count
        for entry in entries {
            var text = entry.experimentID.string
            length = text.withUTF8 { bytes in
                let most = min(length, bytes.count)
                return (0..<most).first { bytes[$0] != first[$0] } ?? most
            }
        }
        return length
    }

    /// Returns 16 bytes of an id as two big-endian numbers, which sort like the bytes. A shorter id is padded with
    /// zeros.
    private static func sortKey(_ experimentID: Identifier, from start: Int) -> (UInt64, UInt64) {
        var high: UInt64 = 0
        var low: UInt64 = 0
        var text = experimentID.string
        text.withUTF8 { bytes in
            for (offset, byte) in bytes[start...].prefix(16).enumerated() {
                if offset < 8 {
                    high |= UInt64(byte) << UInt64(56 - 8 * offset)
                } else {
                    low |= UInt64(byte) << UInt64(120 - 8 * offset)
                }
            }
        }
        return (high, low)
    }

    /// Whether entries are in the byte order of experiment ids, without duplicates.
    private static func isAscending(_ entries: [Entry]) -> Bool {
        guard var former = entries.first?.experimentID else { return true }
        for entry in entries.dropFirst() {
            guard former < entry.experimentID else { return false }
            former = entry.experimentID
        }
        return true
    }

    /// Whether the map has an entry for an experiment, by binary search.
    func contains(_ experimentID: Identifier) -> Bool {
        var rest = entries[...]
        while let middle = rest.indices.middle {
            let found = rest[middle].experimentID
            if found == experimentID { return true }
            rest = found < experimentID ? rest[(middle + 1)...] : rest[..<middle]
        }
        return false
    }
}

extension Range<Int> {
    fileprivate var middle: Int? { isEmpty ? nil : lowerBound + count / 2 }
}

extension ExperimentBucketMap: ExpressibleByDictionaryLiteral {
    public init(dictionaryLiteral entries: (Identifier, Identifier)...) {
        self.init(entries.map { Entry(experimentID: $0, variationID: $1) })
    }

    public init(_ variations: [Identifier: Identifier]) {
        self.init(variations.map { Entry(experimentID: $0.key, variationID: $0.value) })
    }
}
