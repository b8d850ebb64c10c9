public import Foundation

/// The time as the client sees it. An app uses ``SystemClock``; tests bring their own and need not wait.
public protocol HoldfastClock: Sendable {
    /// The time of day, which events are stamped with and the age of what is cached is told by.
    var now: Date { get }

    /// Returns after the duration.
    ///
    /// - Throws: `CancellationError` when the task is cancelled.
    func sleep(for duration: Duration) async throws
}

/// The clock of the system.
public struct SystemClock: HoldfastClock {
    public init() {}

    public var now: Date { Date() }

    public func sleep(for duration: Duration) async throws {
        try await ContinuousClock().sleep(for: duration)
    }
}

extension Duration {
    /// As seconds, for `Date` and `URLRequest`.
    var inSeconds: Double {
        Double(components.seconds) + Double(components.attoseconds) / 1e18
    }
}
