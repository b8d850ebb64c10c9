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
        var text: [UInt8] = []
        text.reserveCapacity(24)
        func append(_ number: Int, _ width: Int, _ end: Character) {
            var (rest, digits) = (number.magnitude, 0)
            if number < 0 { text.append(UInt8(ascii: "-")) }
            repeat {
                text.append(UInt8(ascii: "0") + UInt8(rest % 10))
                (rest, digits) = (rest / 10, digits + 1)
            } while rest > 0 || digits < width
            text[(text.count - digits)...].reverse()
            text += end.utf8
        }
        append(Int(parts.tm_year) + 1_900, 4, "-")
        append(Int(parts.tm_mon) + 1, 2, "-")
        append(Int(parts.tm_mday), 2, "T")
        append(Int(parts.tm_hour), 2, ":")
        append(Int(parts.tm_min), 2, ":")
        append(Int(parts.tm_sec), 2, ".")
        append(Int(milliseconds), 3, "Z")
        return String(decoding: text, as: UTF8.self)
    }
}
