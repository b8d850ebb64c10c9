import Bucketing
internal import Glibc

extension Timestamp {
    /// - Returns: `nil` for what is no time; see ``UTCInstant/init(rfc3339:)``.
    public init?(rfc3339 text: String) {
        guard let instant = UTCInstant(rfc3339: text) else { return nil }
        self = instant.milliseconds
    }

    /// In UTC with milliseconds: `2026-01-31T12:00:00.000Z`.
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
        let date = "\(padded(parts.tm_year + 1900, to: 4))-\(padded(parts.tm_mon + 1, to: 2))-\(padded(parts.tm_mday, to: 2))"
        let time = "\(padded(parts.tm_hour, to: 2)):\(padded(parts.tm_min, to: 2)):\(padded(parts.tm_sec, to: 2))"
        return "\(date)T\(time).\(padded(milliseconds, to: 3))Z"
    }
}
