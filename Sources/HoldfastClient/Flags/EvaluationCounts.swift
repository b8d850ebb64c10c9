/// How often an app evaluated a flag with one result.
public struct EvaluationCount: Sendable, Hashable, Codable {
    public let flagKey: String
    /// `nil` if the user has no variation, or the default was returned.
    public let variationKey: String?
    /// Why the user has the variation, or why the default was returned.
    public let reason: VariationReason
    /// The number of evaluations with this result.
    public let count: Int

    private enum CodingKeys: String, CodingKey {
        case flagKey = "flag_key"
        case variationKey = "variation_key"
        case reason, count
    }
}

/// Counts the evaluations of a client, by flag and result.
///
/// An evaluation increments the ``Counter`` that its flag's snapshot holds, without a lookup. The app and the server
/// read the counts independently of each other: each counter runs on, and an entry remembers what each of them has
/// read.
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
    private static let maximumEntries = 10_000
    /// Unknown keys fill at most half of the entries, so that they cannot displace existing flags.
    private static let maximumUnknownEntries = maximumEntries / 2

    /// Returns the counter of a result. If there are too many entries, the counter is a new one that is not reported.
    func counter(_ flagKey: String, _ variationKey: String?, _ reason: VariationReason) -> Counter {
        let id = ID(flagKey: Key(flagKey), variationKey: variationKey.map { Key($0) }, reason: reason)
        return entries.withLock { entries in
            if let entry = entries[id] { return entry.counter }
            let entry = Entry()
            let isUnknown = [.notFetched, .flagNotFound].contains(reason)
            let maximum = isUnknown ? Self.maximumUnknownEntries : Self.maximumEntries
            if entries.count < maximum { entries[id] = entry }
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
            if missing.count < Self.maximumEntries { missing[key] = counter }
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

    /// - Parameters:
    ///   - base: the count of an entry that was read last, ``Entry/reset`` or ``Entry/reported``.
    ///   - advancing: whether to remember the current counts as read.
    private func read(since base: WritableKeyPath<Entry, Int>, advancing: Bool) -> [EvaluationCount] {
        entries.withLock { entries in
            var counts: [EvaluationCount] = []
            for (id, entry) in entries {
                let count = entry.counter.count
                let former = entry[keyPath: base]
                guard count > former else { continue }
                if advancing { entries[id]?[keyPath: base] = count }
                counts.append(
                    EvaluationCount(
                        flagKey: id.flagKey.string, variationKey: id.variationKey?.string, reason: id.reason,
                        count: count - former))
            }
            return counts
        }.sorted { left, right in
            (left.flagKey, left.variationKey ?? "", left.reason.rawValue)
                < (right.flagKey, right.variationKey ?? "", right.reason.rawValue)
        }
    }
}
