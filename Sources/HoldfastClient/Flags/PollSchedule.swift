/// When flags are asked for again: after the interval; after a failure each minute, five times, and then after the
/// interval again.
struct PollSchedule: Sendable {
    static let retryInterval = Duration.seconds(60)
    static let retries = 5

    private var failures = 0

    /// - Parameter interval: the time between two polls when all goes well.
    mutating func next(succeeded: Bool, interval: Duration) -> Duration {
        failures = succeeded ? 0 : failures + 1
        guard !succeeded else { return interval }
        guard failures <= Self.retries else {
            failures = 0
            return interval
        }
        return min(Self.retryInterval, interval)
    }
}
