internal import Synchronization

/// Counts what was done with attributes and segments; from any thread.
final class AttributeFigures: Sendable {
    private let changed = Atomic<UInt64>(0)
    private let unchanged = Atomic<UInt64>(0)
    private let scans = Atomic<UInt64>(0)
    private let examined = Atomic<UInt64>(0)

    struct Totals {
        /// Values that were set or removed, and those that were stored already.
        let changed, unchanged: UInt64
        /// Looks through the users for a segment, and users in them all.
        let scans, examined: UInt64
    }

    var totals: Totals {
        Totals(
            changed: changed.load(ordering: .relaxed), unchanged: unchanged.load(ordering: .relaxed),
            scans: scans.load(ordering: .relaxed), examined: examined.load(ordering: .relaxed))
    }

    func count(changed changes: Int, of values: Int) {
        changed.add(UInt64(changes), ordering: .relaxed)
        unchanged.add(UInt64(max(0, values - changes)), ordering: .relaxed)
    }

    func countScan(of users: Int) {
        scans.add(1, ordering: .relaxed)
        examined.add(UInt64(users), ordering: .relaxed)
    }
}
