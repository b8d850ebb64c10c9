import Synchronization

/// How often an app evaluated a flag with one result.
public struct EvaluationCount: Sendable, Hashable {
    public let flagKey: String
    /// `nil` if the default was returned.
    public let variationKey: String?
    /// Why the user has the variation, or why the default was returned.
    public let reason: EvaluationReason
    public let count: Int
}

/// Counts the evaluations of a client.
final class EvaluationCounts: Sendable {
    /// A number that evaluations increment without a lock.
    final class Counter: Sendable {
        private let value = Atomic<Int>(0)

        @inline(__always)
        func increment() { value.wrappingAdd(1, ordering: .relaxed) }

        fileprivate func read(resetting: Bool) -> Int {
            resetting ? value.exchange(0, ordering: .relaxed) : value.load(ordering: .relaxed)
        }
    }

    private struct ID: Hashable {
        var flagKey: Key
        var variationKey: Key?
        var reason: EvaluationReason
    }

    private let counters = Mutex<[ID: Counter]>([:])
    /// Evaluations of flags that are missing, before and after the first fetch.
    private let missing = Mutex<[Key: (before: Int, after: Int)]>([:])

    /// Bounds memory if an app makes up flag keys.
    private static let limit = 10_000

    /// Returns the counter of a result, or one that nobody reads if there are too many.
    func counter(_ flagKey: String, _ variationKey: String?, _ reason: EvaluationReason) -> Counter {
        let id = ID(flagKey: Key(flagKey), variationKey: variationKey.map { Key($0) }, reason: reason)
        return counters.withLock { counters in
            if let counter = counters[id] { return counter }
            let counter = Counter()
            if counters.count < Self.limit { counters[id] = counter }
            return counter
        }
    }

    /// Counts an evaluation of a flag that is missing.
    func countMissing(_ flagKey: String, isFetched: Bool) {
        let key = Key(flagKey)
        missing.withLock { missing in
            guard missing.count < Self.limit || missing[key] != nil else { return }
            if isFetched { missing[key, default: (0, 0)].after += 1 } else { missing[key, default: (0, 0)].before += 1 }
        }
    }

    /// Returns all counts that are not zero, ordered by flag.
    func all(resetting: Bool) -> [EvaluationCount] {
        let counters = counters.withLock { $0 }
        let missing = missing.withLock { missing in
            defer { if resetting { missing = [:] } }
            return missing
        }
        let defaults = missing.flatMap { key, count in
            [(EvaluationReason.notFetched, count.before), (.flagNotFound, count.after)].map { reason, count in
                EvaluationCount(flagKey: key.string, variationKey: nil, reason: reason, count: count)
            }
        }
        return
            (defaults
            + counters.map { id, counter in
                EvaluationCount(
                    flagKey: id.flagKey.string, variationKey: id.variationKey?.string, reason: id.reason,
                    count: counter.read(resetting: resetting))
            }).filter { $0.count > 0 }
            .sorted {
                ($0.flagKey, $0.variationKey ?? "", $0.reason.rawValue) < (
                    $1.flagKey, $1.variationKey ?? "", $1.reason.rawValue
                )
            }
    }
}
