public import Bucketing
import Storage
internal import Synchronization

/// Counts decisions by the origin of the variation (``DecisionSource``). Thread-safe: each count is an atomic number,
/// because every decision increments one, and a lock would be contended.
public final class DecisionMetrics: Sendable {
    public init() {}

    private let requested = Atomic<UInt64>(0)
    private let override = Atomic<UInt64>(0)
    private let whitelist = Atomic<UInt64>(0)
    private let stored = Atomic<UInt64>(0)
    private let bucketed = Atomic<UInt64>(0)
    private let concluded = Atomic<UInt64>(0)
    private let holdout = Atomic<UInt64>(0)
    private let none = Atomic<UInt64>(0)

    /// Counts a decision.
    public func count(_ source: DecisionSource) {
        switch source {
        case .requested: requested.add(1, ordering: .relaxed)
        case .override: override.add(1, ordering: .relaxed)
        case .whitelist: whitelist.add(1, ordering: .relaxed)
        case .stored: stored.add(1, ordering: .relaxed)
        case .bucketed: bucketed.add(1, ordering: .relaxed)
        case .concluded: concluded.add(1, ordering: .relaxed)
        case .holdout: holdout.add(1, ordering: .relaxed)
        case .none: none.add(1, ordering: .relaxed)
        }
    }

    /// Returns the number of decisions with an origin since the server started.
    public func value(_ source: DecisionSource) -> UInt64 {
        switch source {
        case .requested: requested.load(ordering: .relaxed)
        case .override: override.load(ordering: .relaxed)
        case .whitelist: whitelist.load(ordering: .relaxed)
        case .stored: stored.load(ordering: .relaxed)
        case .bucketed: bucketed.load(ordering: .relaxed)
        case .concluded: concluded.load(ordering: .relaxed)
        case .holdout: holdout.load(ordering: .relaxed)
        case .none: none.load(ordering: .relaxed)
        }
    }
}

/// Counts changes of users' attributes, and scans of users for segments. Thread-safe.
public final class AttributeMetrics: Sendable {
    public init() {}

    private let changed = Atomic<UInt64>(0)
    private let unchanged = Atomic<UInt64>(0)
    private let scans = Atomic<UInt64>(0)
    private let examined = Atomic<UInt64>(0)

    /// The numbers since the server started.
    public struct Totals {
        /// Values that were set or removed.
        public let changed: UInt64
        /// Values in requests that were already stored.
        public let unchanged: UInt64
        /// Scans of users for a segment.
        public let scans: UInt64
        /// Users that the scans have examined.
        public let examined: UInt64
    }

    public var totals: Totals {
        Totals(
            changed: changed.load(ordering: .relaxed), unchanged: unchanged.load(ordering: .relaxed),
            scans: scans.load(ordering: .relaxed), examined: examined.load(ordering: .relaxed))
    }

    /// Counts the values of a request.
    ///
    /// - Parameters:
    ///   - changes: the number of values that were changed.
    ///   - values: the number of values in the request.
    public func count(changed changes: Int, of values: Int) {
        changed.add(UInt64(changes), ordering: .relaxed)
        unchanged.add(UInt64(max(0, values - changes)), ordering: .relaxed)
    }

    /// Counts a scan for a segment.
    ///
    /// - Parameter users: the number of users that the scan has examined.
    public func countScan(of users: Int) {
        scans.add(1, ordering: .relaxed)
        examined.add(UInt64(users), ordering: .relaxed)
    }
}
