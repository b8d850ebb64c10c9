public import Foundation

/// The client's source of time. Apps use ``SystemClock``; tests supply a clock that they advance themselves.
public protocol HoldfastClock: Sendable {
    /// The wall-clock time, used for event timestamps and the age of cached data.
    var now: Date { get }

    /// Returns after the duration.
    ///
    /// - Throws: `CancellationError` when the task is cancelled.
    func sleep(for duration: Duration) async throws
}

/// The system clock.
public struct SystemClock: HoldfastClock {
    public init() {}

    public var now: Date { Date() }

    /// Returns after the duration, at most 30 years, because sleeping longer, such as `.seconds(Int.max)`, ends the
    /// process.
    public func sleep(for duration: Duration) async throws {
        try await ContinuousClock().sleep(for: min(duration, .seconds(1_000_000_000)))
    }
}

extension Duration {
    /// The duration in seconds, for `Date` and `URLRequest`.
    var inSeconds: Double {
        Double(components.seconds) + Double(components.attoseconds) / 1e18
    }
}

extension Date {
    /// In UTC with milliseconds, such as `2026-01-31T12:00:00.000Z`.
    var rfc3339: String {
        formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }
}
