import Bucketing

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#elseif canImport(Darwin)
    import Darwin
#endif

/// Milliseconds since 1970-01-01T00:00:00Z.
public typealias Timestamp = Int64

/// Returns the current time; tests substitute one that they control.
public typealias WallClock = @Sendable () -> Timestamp

/// Returns the system's time.
@Sendable
public func systemWallClock() -> Timestamp {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Timestamp(time.tv_sec) * 1_000 + Timestamp(time.tv_nsec) / 1_000_000
}

extension Duration {
    /// The duration in whole milliseconds, rounded toward zero and clamped to 64 bits.
    package var wholeMilliseconds: Int64 {
        let (seconds, attoseconds) = components
        let (milliseconds, overflow) = seconds.multipliedReportingOverflow(by: 1_000)
        guard !overflow else { return seconds < 0 ? .min : .max }
        let (sum, sumOverflow) = milliseconds.addingReportingOverflow(attoseconds / 1_000_000_000_000_000)
        return sumOverflow ? (seconds < 0 ? .min : .max) : sum
    }
}

extension Timestamp {
    /// Parses a time of RFC 3339.
    ///
    /// - Returns: `nil` if it is malformed; see ``UTCInstant/init(rfc3339:)``.
    public init?(rfc3339 text: String) {
        guard let instant = UTCInstant(rfc3339: text) else { return nil }
        self = instant.milliseconds
    }

    /// The time in UTC with milliseconds: `2026-01-31T12:00:00.000Z`.
    public var rfc3339: String {
        var seconds = time_t(self / 1_000)
        var milliseconds = self % 1_000
        if milliseconds < 0 {
            milliseconds += 1_000
            seconds -= 1
        }
        var parts = tm()
        gmtime_r(&seconds, &parts)
        func padded(_ number: some BinaryInteger, to width: Int) -> String {
            let digits = String(number)
            return String(repeating: "0", count: Swift.max(0, width - digits.count)) + digits
        }
        let date =
            "\(padded(parts.tm_year + 1900, to: 4))-\(padded(parts.tm_mon + 1, to: 2))-\(padded(parts.tm_mday, to: 2))"
        let time = "\(padded(parts.tm_hour, to: 2)):\(padded(parts.tm_min, to: 2)):\(padded(parts.tm_sec, to: 2))"
        return "\(date)T\(time).\(padded(milliseconds, to: 3))Z"
    }
}
