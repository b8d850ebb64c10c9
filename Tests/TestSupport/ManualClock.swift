public import Storage
import Synchronization

/// A clock that tests advance.
public final class ManualClock: Sendable {
    private let time: Atomic<Int64>

    public init(now: Timestamp = 1_700_000_000_000) {
        time = Atomic(now)
    }

    public var now: Timestamp { time.load(ordering: .sequentiallyConsistent) }

    public var wallClock: WallClock {
        { self.now }
    }

    public func advance(by duration: Duration) {
        let milliseconds = duration.components.seconds * 1_000 + duration.components.attoseconds / 1_000_000_000_000_000
        time.add(milliseconds, ordering: .sequentiallyConsistent)
    }
}
