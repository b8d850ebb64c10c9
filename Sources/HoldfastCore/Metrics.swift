public import Bucketing
import Storage
internal import Synchronization

/// Counts decisions by the origin of the variation. Thread-safe.
public final class DecisionMetrics: Sendable {
    public init() {}

    private let forced = Atomic<UInt64>(0)
    private let override = Atomic<UInt64>(0)
    private let whitelist = Atomic<UInt64>(0)
    private let stored = Atomic<UInt64>(0)
    private let bucketed = Atomic<UInt64>(0)
    private let holdout = Atomic<UInt64>(0)
    private let none = Atomic<UInt64>(0)

    public func count(_ source: DecisionSource) {
        switch source {
        case .forced: forced.add(1, ordering: .relaxed)
        case .override: override.add(1, ordering: .relaxed)
        case .whitelist: whitelist.add(1, ordering: .relaxed)
        case .stored: stored.add(1, ordering: .relaxed)
        case .bucketed: bucketed.add(1, ordering: .relaxed)
        case .holdout: holdout.add(1, ordering: .relaxed)
        case .none: none.add(1, ordering: .relaxed)
        }
    }

    public func value(_ source: DecisionSource) -> UInt64 {
        switch source {
        case .forced: forced.load(ordering: .relaxed)
        case .override: override.load(ordering: .relaxed)
        case .whitelist: whitelist.load(ordering: .relaxed)
        case .stored: stored.load(ordering: .relaxed)
        case .bucketed: bucketed.load(ordering: .relaxed)
        case .holdout: holdout.load(ordering: .relaxed)
        case .none: none.load(ordering: .relaxed)
        }
    }
}

/// Counts changes of attributes and scans for segments. Thread-safe.
public final class AttributeMetrics: Sendable {
    public init() {}

    private let changed = Atomic<UInt64>(0)
    private let unchanged = Atomic<UInt64>(0)
    private let scans = Atomic<UInt64>(0)
    private let examined = Atomic<UInt64>(0)

    public struct Totals {
        /// Values that were set or removed, and values that were stored already.
        public let changed, unchanged: UInt64
        /// Scans of users for a segment, and the users examined by all of them.
        public let scans, examined: UInt64
    }

    public var totals: Totals {
        Totals(
            changed: changed.load(ordering: .relaxed), unchanged: unchanged.load(ordering: .relaxed),
            scans: scans.load(ordering: .relaxed), examined: examined.load(ordering: .relaxed))
    }

    public func count(changed changes: Int, of values: Int) {
        changed.add(UInt64(changes), ordering: .relaxed)
        unchanged.add(UInt64(max(0, values - changes)), ordering: .relaxed)
    }

    public func countScan(of users: Int) {
        scans.add(1, ordering: .relaxed)
        examined.add(UInt64(users), ordering: .relaxed)
    }
}
