import Foundation

/// Exponential back-off with jitter: the delay doubles from 1 s up to `longest`, and is shortened by up to a half at
/// random, so that clients do not all retry at the same time.
struct Backoff: Sendable {
    /// Upper bound of the delay in seconds, before the server's `Retry-After`.
    var longest: Double = 300
    /// The number of consecutive failures.
    private(set) var failures = 0

    /// The number of failures after which the delay no longer grows: 2^20 s is more than any `longest`, and further
    /// doubling could overflow.
    private static let countedFailures = 21

    mutating func succeeded() {
        failures = 0
    }

    /// Notes a failure.
    ///
    /// - Parameters:
    ///   - retryAfter: the server's lower bound.
    ///   - chance: the jitter, from 0 up to but not including 1.
    /// - Returns: the delay before the next attempt.
    mutating func failed(retryAfter: Duration? = nil, chance: Double = .random(in: 0..<1)) -> Duration {
        failures = min(failures + 1, Self.countedFailures)
        let upperBound = min(longest, Double(1 << (failures - 1)))
        let delay = Duration.seconds(upperBound / 2 + upperBound / 2 * chance)
        guard let retryAfter, retryAfter > delay else { return delay }
        // Spreads clients that received the same `Retry-After`.
        return retryAfter + .seconds(chance)
    }
}

/// A period of waiting, from a start by the wall clock.
struct Pause: Sendable {
    var start: Date
    var duration: Duration

    /// The remaining time, at least zero. Ends the pause if the clock was set back, which would otherwise extend it.
    func remaining(at now: Date) -> Duration {
        let passed = now.timeIntervalSince(start)
        return passed < 0 ? .zero : max(.zero, duration - .seconds(passed))
    }
}

/// Computes when the next poll is due. After a success it is due after the interval. After a failure there are five
/// retries, one a minute; then the next poll is due one interval after the first poll that failed.
struct PollSchedule: Sendable {
    /// The time between retries.
    static let retryInterval = Duration.seconds(60)
    /// The number of retries after the first poll that failed.
    static let retries = 5

    /// The number of consecutive failures, the first poll included.
    private var failures = 0
    /// When the first of the consecutive failures began.
    private var firstFailure = Date.distantPast

    /// - Parameters:
    ///   - succeeded: whether the last poll succeeded.
    ///   - interval: the regular time between two polls.
    ///   - attempt: when the last poll began.
    /// - Returns: the time until the next poll.
    mutating func next(succeeded: Bool, interval: Duration, attemptedAt attempt: Date, now: Date) -> Duration {
        guard !succeeded else {
            failures = 0
            return interval
        }
        if failures == 0 { firstFailure = attempt }
        failures += 1
        let retryDelay = min(Self.retryInterval, interval)
        guard failures > Self.retries else { return retryDelay }
        failures = 0
        // At least zero, because the clock may have been set back.
        let passed = max(0, now.timeIntervalSince(firstFailure))
        return max(interval - .seconds(passed), retryDelay)
    }
}

/// The difference between the device's clock and the server's. Event times are corrected by it, because the server
/// refuses events of the future and of last week.
final class ClockSkew: Sendable {
    /// The server's clock minus the device's clock, in seconds; 0 if the difference is too small to be corrected.
    private let seconds: Locked<Double>
    /// Stores a new difference for the next run.
    private let remember: @Sendable (Double) -> Void
    /// The minimum difference in seconds that is corrected. A smaller one may be due to the latency of the network.
    private static let tolerance = 60.0

    /// - Parameters:
    ///   - seconds: the difference that an earlier run has remembered, in seconds; 0 if there is none.
    ///   - remember: stores a new difference for the next run.
    init(_ seconds: Double, remember: @escaping @Sendable (Double) -> Void) {
        self.seconds = Locked(seconds)
        self.remember = remember
    }

    /// Updates the difference from a response.
    ///
    /// - Parameter field: the header field `Date` of a response that has just arrived.
    func learn(_ field: String?, at now: Date) {
        guard let date = field.flatMap({ HTTPDate.parse($0) }) else { return }
        var difference = date.timeIntervalSince(now)
        if abs(difference) < Self.tolerance { difference = 0 }
        let isNew = seconds.withLock { seconds in
            // A small change of a difference is not remembered, but the end of a difference is.
            let hasChanged = difference == 0 ? seconds != 0 : abs(difference - seconds) >= Self.tolerance
            if hasChanged { seconds = difference }
            return hasChanged
        }
        if isNew { remember(difference) }
    }

    /// Returns a time of the device by the server's clock.
    func corrected(_ date: Date) -> Date {
        date.addingTimeInterval(seconds.withLock { $0 })
    }
}
