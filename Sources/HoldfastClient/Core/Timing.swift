import Foundation

/// Exponential back-off with jitter: doubles from 1 s up to `longest`, of which a random half to all is waited, so that
/// clients do not return all at once.
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
        // Spreads clients that were given the same moment.
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

/// The time of the next poll: after the interval; after a failure each minute, five times, and then when the interval is
/// over that began with the first of these polls.
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
