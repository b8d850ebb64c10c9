import Foundation

/// How long to wait after failures: twice as long after each, from 1 s to the longest time, and between half of it and
/// all of it by chance, so that clients do not come back all at once.
struct Backoff: Sendable {
    /// In seconds.
    var longest: Double = 300
    private(set) var failures = 0

    mutating func succeeded() {
        failures = 0
    }

    /// - Parameters:
    ///   - retryAfter: what the server asked for, which is the least.
    ///   - chance: 0..<1.
    mutating func failed(retryAfter: Duration? = nil, chance: Double = .random(in: 0..<1)) -> Duration {
        failures = min(failures + 1, 30)
        let most = min(longest, Double(1 << min(failures - 1, 20)))
        let delay = Duration.seconds(most / 2 + most / 2 * chance)
        guard let retryAfter, retryAfter > delay else { return delay }
        // Those who were told the same moment do not all come in it.
        return retryAfter + .seconds(chance)
    }
}

/// A time to wait.
struct Rest: Sendable {
    var start: Date
    var duration: Duration

    /// What is left of it: zero when it is over. A clock that was set back ends it, as it would last too long.
    func left(at now: Date) -> Duration {
        let passed = now.timeIntervalSince(start)
        return passed < 0 ? .zero : max(.zero, duration - .seconds(passed))
    }
}
