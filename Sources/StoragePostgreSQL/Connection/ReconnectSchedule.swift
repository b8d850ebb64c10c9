/// Determines when a connection may be opened again after a failure. The pause doubles up to a limit, so that a server
/// that restarts is not overloaded. Reads no clock: the caller passes times in monotonic nanoseconds.
struct ReconnectSchedule {
    /// The first pause, in nanoseconds.
    static let shortest: UInt64 = 50_000_000
    /// The limit of the pause, in nanoseconds.
    static let longest: UInt64 = 1_000_000_000

    /// The number of failures since the last success.
    private var failures = 0
    /// When the next attempt may start, in nanoseconds of the monotonic clock.
    private(set) var earliest: UInt64 = 0
    /// Why the last attempt failed; `nil` after a success.
    private(set) var lastError: PostgreSQLError?

    func mayConnect(at now: UInt64) -> Bool { now >= earliest }

    mutating func succeeded() {
        self = ReconnectSchedule()
    }

    /// Notes a failed attempt, and sets ``earliest``.
    ///
    /// - Parameter jitter: random, 0 to 1. The pause is 50% to 100% of its full length, to spread the attempts of
    ///   several connections.
    mutating func failed(_ error: PostgreSQLError, at now: UInt64, jitter: Double) {
        // The shift is limited, so that it does not overflow. The pause reaches its limit before.
        let pause = min(Self.longest, Self.shortest << UInt64(min(failures, 10)))
        failures += 1
        lastError = error
        earliest = now &+ UInt64(Double(pause) * (0.5 + 0.5 * min(max(jitter, 0), 1)))
    }
}
