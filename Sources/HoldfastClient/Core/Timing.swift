import Foundation

/// Exponential back-off with jitter: the delay doubles from 1 s up to `longest`, and is shortened by up to a half at
/// random, so that clients do not all retry at the same time.
struct Backoff: Sendable {
    /// Upper bound in seconds.
    var longest: Double = 300
    private(set) var failures = 0

    mutating func succeeded() {
        failures = 0
    }

    /// - Parameters:
    ///   - retryAfter: the server's lower bound.
    ///   - chance: jitter, 0..<1.
    mutating func failed(retryAfter: Duration? = nil, chance: Double = .random(in: 0..<1)) -> Duration {
        failures = min(failures + 1, 30)
        let most = min(longest, Double(1 << min(failures - 1, 20)))
        let delay = Duration.seconds(most / 2 + most / 2 * chance)
        guard let retryAfter, retryAfter > delay else { return delay }
        // Spreads clients that received the same `Retry-After`.
        return retryAfter + .seconds(chance)
    }
}

/// A pause that began at some time.
struct Rest: Sendable {
    var start: Date
    var duration: Duration

    /// The remaining time, at least zero. Ends the pause if the clock was set back, which would otherwise extend it.
    func left(at now: Date) -> Duration {
        let passed = now.timeIntervalSince(start)
        return passed < 0 ? .zero : max(.zero, duration - .seconds(passed))
    }
}

/// The time of the next poll. After a success it is the interval. After a failure there are five retries, one a minute;
/// then the next poll is due one interval after the first poll that failed.
struct PollSchedule: Sendable {
    static let retryInterval = Duration.seconds(60)
    static let retries = 5

    private var failures = 0
    private var start = Date.distantPast

    /// - Parameter interval: the regular time between two polls.
    /// - Returns: the time until the next poll.
    mutating func next(succeeded: Bool, interval: Duration, attemptedAt attempt: Date, now: Date) -> Duration {
        guard !succeeded else {
            failures = 0
            return interval
        }
        if failures == 0 { start = attempt }
        failures += 1
        guard failures > Self.retries else { return min(Self.retryInterval, interval) }
        failures = 0
        return max(interval - .seconds(max(0, now.timeIntervalSince(start))), min(Self.retryInterval, interval))
    }
}

/// The difference between the device's clock and the server's. Event times are corrected by it, because the server
/// refuses events of the future and of last week.
final class ClockSkew: Sendable {
    private let seconds: Locked<Double>
    private let remember: @Sendable (Double) -> Void
    /// The minimum difference in seconds that is corrected. A smaller one may be due to the latency of the network.
    private static let tolerance = 60.0

    /// - Parameters:
    ///   - seconds: the difference in an earlier run.
    ///   - remember: stores a new difference for the next run.
    init(_ seconds: Double, remember: @escaping @Sendable (Double) -> Void) {
        self.seconds = Locked(seconds)
        self.remember = remember
    }

    /// - Parameter field: the header field `Date` of a response that has just arrived.
    func learn(_ field: String?, at now: Date) {
        guard let date = field.flatMap({ HTTPDate.parse($0) }) else { return }
        var difference = date.timeIntervalSince(now)
        if abs(difference) < Self.tolerance { difference = 0 }
        let isNew = seconds.withLock { seconds in
            guard difference == 0 ? seconds != 0 : abs(difference - seconds) >= Self.tolerance else { return false }
            seconds = difference
            return true
        }
        if isNew { remember(difference) }
    }

    func corrected(_ date: Date) -> Date {
        date.addingTimeInterval(seconds.withLock { $0 })
    }
}
