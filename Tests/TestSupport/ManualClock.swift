public import Chronology
public import Storage
import Synchronization

/// A clock that tests advance.
public final class ManualClock: Sendable {
    /// Milliseconds since 1970.
    private let time: Atomic<Int64>

    public init(now: Instant = 1_700_000_000_000) {
        time = Atomic(now.milliseconds)
    }

    public var now: Instant { Instant(milliseconds: time.load(ordering: .sequentiallyConsistent)) }

    public var wallClock: WallClock {
        { self.now }
    }

    public func advance(by span: TimeSpan) {
        time.add(span.milliseconds, ordering: .sequentiallyConsistent)
    }
}

// In tests a number is a time in milliseconds since 1970, or a span of milliseconds.

extension Instant: ExpressibleByIntegerLiteral {
    public init(integerLiteral milliseconds: Int64) { self.init(milliseconds: milliseconds) }
}

extension TimeSpan: ExpressibleByIntegerLiteral {
    public init(integerLiteral milliseconds: Int64) { self.init(milliseconds: milliseconds) }
}
