public import Bucketing

/// The variation that each of some experiments is to get: the map of a user profile, without where it came from.
public struct ExperimentBucketMap: Sendable, Hashable {
    public struct Entry: Sendable, Hashable {
        public let experimentID: Identifier
        public let variationID: Identifier

        public init(experimentID: Identifier, variationID: Identifier) {
            self.experimentID = experimentID
            self.variationID = variationID
        }
    }

    /// One for each experiment, ascending by its id.
    public let entries: [Entry]

    public static let empty = ExperimentBucketMap(checked: [])

    /// - Parameter entries: in any order; of several for one experiment the last counts.
    public init(_ entries: [Entry]) {
        if Self.isAscending(entries) {
            self.entries = entries
            return
        }
        let sorted = entries.sorted { $0.experimentID < $1.experimentID }
        if Self.isAscending(sorted) {
            self.entries = sorted
            return
        }
        let last = Dictionary(entries.map { ($0.experimentID, $0) }, uniquingKeysWith: { $1 })
        self.entries = last.values.sorted { $0.experimentID < $1.experimentID }
    }

    private init(checked entries: [Entry]) {
        self.entries = entries
    }

    private static func isAscending(_ entries: [Entry]) -> Bool {
        guard var former = entries.first?.experimentID else { return true }
        for entry in entries.dropFirst() {
            guard former < entry.experimentID else { return false }
            former = entry.experimentID
        }
        return true
    }

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
