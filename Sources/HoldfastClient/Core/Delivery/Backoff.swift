/// How long to wait after failures: twice as long after each, from 1 s to 5 min, and between half of it and all of it
/// by chance, so that clients do not come back all at once.
struct Backoff: Sendable {
    private(set) var failures = 0

    private static let longest: Double = 300

    mutating func succeeded() {
        failures = 0
    }

    /// - Parameters:
    ///   - retryAfter: what the server asked for, which is the least.
    ///   - chance: 0..<1.
    mutating func failed(retryAfter: Duration? = nil, chance: Double = .random(in: 0..<1)) -> Duration {
        failures = min(failures + 1, 30)
        let most = min(Self.longest, Double(1 << min(failures - 1, 20)))
        let delay = Duration.seconds(most / 2 + most / 2 * chance)
        guard let retryAfter, retryAfter > delay else { return delay }
        // Those who were told the same moment do not all come in it.
        return retryAfter + .seconds(chance)
    }
}
