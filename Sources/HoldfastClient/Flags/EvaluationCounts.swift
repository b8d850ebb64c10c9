/// How often an app evaluated a flag with one result.
public struct EvaluationCount: Sendable, Hashable, Codable {
    public let flagKey: String
    /// `nil` if the user has no variation, or the default was returned.
    public let variationKey: String?
    /// Why the user has the variation, or why the default was returned.
    public let reason: VariationReason
    public let count: Int

    private enum CodingKeys: String, CodingKey {
        case flagKey = "flag_key"
        case variationKey = "variation_key"
        case reason, count
    }
}

/// Counts the evaluations of a client.
final class EvaluationCounts: Sendable {
    /// A number that evaluations increment.
    final class Counter: Sendable {
        private let value = Locked(0)

        @inline(__always)
        func increment() { value.withLock { $0 &+= 1 } }

        fileprivate var count: Int { value.withLock { $0 } }
    }

    private struct ID: Hashable {
        var flagKey: Key
        var variationKey: Key?
        var reason: VariationReason
    }

    private struct Entry {
        let counter = Counter()
        /// The count when the app last called ``EvaluationCounts/all(resetting:)`` with a reset.
        var reset = 0
        /// The count that was last reported to the server.
        var reported = 0
    }

    private let entries = Locked<[ID: Entry]>([:])
    /// The counters of flags that the server does not have. A lookup here hashes only the key, not a whole ``ID``.
    private let missing = Locked<[Key: Counter]>([:])

    /// The maximum number of entries, to bound memory if an app generates flag keys.
    private static let limit = 10_000

    /// Returns the counter of a result. If there are too many entries, the counter is a new one that is not reported.
    func counter(_ flagKey: String, _ variationKey: String?, _ reason: VariationReason) -> Counter {
        let id = ID(flagKey: Key(flagKey), variationKey: variationKey.map { Key($0) }, reason: reason)
        return entries.withLock { entries in
            if let entry = entries[id] { return entry.counter }
            let entry = Entry()
            // Unknown keys fill at most half of the entries, so that they cannot displace existing flags.
            let isOfFlag = ![.notFetched, .flagNotFound].contains(reason)
            if entries.count < (isOfFlag ? Self.limit : Self.limit / 2) { entries[id] = entry }
            return entry.counter
        }
    }

    /// Counts an evaluation of a flag that is missing, before or after the first fetch.
    func countMissing(_ flagKey: String, isFetched: Bool) {
        guard isFetched else { return counter(flagKey, nil, .notFetched).increment() }
        let key = Key(flagKey)
        missing.withLock { missing in
            if let counter = missing[key] { return counter.increment() }
            let counter = self.counter(flagKey, nil, .flagNotFound)
            if missing.count < Self.limit { missing[key] = counter }
            counter.increment()
        }
    }

    /// Returns the counts since the last reset that are not zero, ordered by flag.
    func all(resetting: Bool) -> [EvaluationCount] {
        read(since: \.reset, advancing: resetting)
    }

    /// Returns the counts since the last call that are not zero, ordered by flag.
    func takeUnreported() -> [EvaluationCount] {
        read(since: \.reported, advancing: true)
    }

    private func read(since base: WritableKeyPath<Entry, Int>, advancing: Bool) -> [EvaluationCount] {
        entries.withLock { entries in
            var counts: [EvaluationCount] = []
            for (id, entry) in entries {
                let (count, former) = (entry.counter.count, entry[keyPath: base])
                guard count > former else { continue }
                if advancing { entries[id]?[keyPath: base] = count }
                counts.append(
                    EvaluationCount(
                        flagKey: id.flagKey.string, variationKey: id.variationKey?.string, reason: id.reason,
                        count: count - former))
            }
            return counts
        }.sorted {
            ($0.flagKey, $0.variationKey ?? "", $0.reason.rawValue)
                < ($1.flagKey, $1.variationKey ?? "", $1.reason.rawValue)
        }
    }
}
