/// When a connection may be opened again after a failure: with a pause that doubles up to a limit, so that a server
/// that restarts is not overloaded. Pure: times are passed in.
struct ReconnectSchedule {
    static let shortest: UInt64 = 50_000_000
    static let longest: UInt64 = 1_000_000_000

    private var failures = 0
    /// Monotonic nanoseconds.
    private(set) var earliest: UInt64 = 0
    /// Why the last attempt failed; `nil` after a success.
    private(set) var lastError: PostgreSQLError?

    func mayConnect(at now: UInt64) -> Bool { now >= earliest }

    mutating func succeeded() {
        self = ReconnectSchedule()
    }

    /// - Parameter jitter: 0 to 1, random; spreads the attempts of several connections.
    mutating func failed(_ error: PostgreSQLError, at now: UInt64, jitter: Double) {
        let pause = min(Self.longest, Self.shortest << UInt64(min(failures, 10)))
        failures += 1
        lastError = error
        earliest = now &+ UInt64(Double(pause) * (0.5 + 0.5 * min(max(jitter, 0), 1)))
    }
}
