import Bucketing
internal import Synchronization

/// Counts decisions by where the variation came from; from any thread.
final class DecisionFigures: Sendable {
    private let forced = Atomic<UInt64>(0)
    private let override = Atomic<UInt64>(0)
    private let whitelist = Atomic<UInt64>(0)
    private let stored = Atomic<UInt64>(0)
    private let bucketed = Atomic<UInt64>(0)
    private let holdout = Atomic<UInt64>(0)
    private let none = Atomic<UInt64>(0)

    func count(_ origin: Origin) {
        switch origin {
        case .forced: forced.add(1, ordering: .relaxed)
        case .override: override.add(1, ordering: .relaxed)
        case .whitelist: whitelist.add(1, ordering: .relaxed)
        case .stored: stored.add(1, ordering: .relaxed)
        case .bucketed: bucketed.add(1, ordering: .relaxed)
        case .holdout: holdout.add(1, ordering: .relaxed)
        case .none: none.add(1, ordering: .relaxed)
        }
    }

    func value(_ origin: Origin) -> UInt64 {
        switch origin {
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
