import Glibc
import Storage

extension Timestamp {
    /// In UTC with milliseconds: `2026-01-31T12:00:00.000Z`.
    var rfc3339: String {
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

    /// A time such as `2026-01-31T12:00:00Z` or `2026-01-31T13:00:00.5+01:00` (RFC 3339 §5.6), to the millisecond; a
    /// leap second counts as the one before it. `nil` for anything else.
    init?(rfc3339 text: String) {
        var rest = Substring(text).utf8
        func number(_ count: Int) -> Int? {
            let digits = rest.prefix(count)
            guard digits.count == count, digits.allSatisfy({ $0 &- UInt8(ascii: "0") < 10 }) else { return nil }
            rest = rest.dropFirst(count)
            return Int(Substring(digits))
        }
        func take(_ characters: String) -> UInt8? {
            guard let first = rest.first, characters.utf8.contains(first) else { return nil }
            rest = rest.dropFirst()
            return first
        }
        guard let year = number(4), take("-") != nil, let month = number(2), take("-") != nil, let day = number(2),
            take("Tt") != nil, let hour = number(2), take(":") != nil, let minute = number(2), take(":") != nil,
            let second = number(2), hour < 24, minute < 60, second <= 60
        else { return nil }
        var milliseconds = 0
        if take(".") != nil {
            let fraction = rest.prefix { $0 &- UInt8(ascii: "0") < 10 }
            guard !fraction.isEmpty else { return nil }
            milliseconds = Int(String(Substring(fraction.prefix(3))).padding(to: 3)) ?? 0
            rest = rest.dropFirst(fraction.count)
        }
        var offset = 0
        guard let sign = take("Zz+-") else { return nil }
        if "+-".utf8.contains(sign) {
            guard let hours = number(2), take(":") != nil, let minutes = number(2), hours < 24, minutes < 60 else { return nil }
            offset = (hours * 60 + minutes) * (sign == UInt8(ascii: "-") ? -60 : 60)
        }
        var parts = tm()
        (parts.tm_year, parts.tm_mon, parts.tm_mday) = (Int32(year - 1900), Int32(month - 1), Int32(day))
        (parts.tm_hour, parts.tm_min, parts.tm_sec) = (Int32(hour), Int32(minute), Int32(Swift.min(second, 59)))
        let seconds = timegm(&parts)
        // A day that the month does not have has become one of the next month.
        guard rest.isEmpty, parts.tm_mday == day, parts.tm_mon == month - 1 else { return nil }
        self = (Int64(seconds) - Int64(offset)) * 1_000 + Int64(milliseconds)
    }
}

extension String {
    /// The text with zeros at its end, as the digits of a fraction may have.
    fileprivate func padding(to width: Int) -> String {
        self + String(repeating: "0", count: Swift.max(0, width - utf8.count))
    }
}
