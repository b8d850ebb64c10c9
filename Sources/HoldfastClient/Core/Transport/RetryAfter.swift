import Foundation

/// The field `Retry-After` (RFC 9110 §10.2.3).
enum RetryAfter {
    /// - Parameter now: what a date is measured from.
    /// - Returns: no more than a day; `nil` if there is no such field, or it says nothing.
    static func parse(_ value: String?, now: Date = Date()) -> Duration? {
        guard let value else { return nil }
        if let seconds = Int(value) { return seconds < 0 ? nil : .seconds(min(seconds, 86_400)) }
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(secondsFromGMT: 0)
        formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss zzz"
        guard let date = formatter.date(from: value) else { return nil }
        return .seconds(max(0, min(date.timeIntervalSince(now), 86_400)))
    }
}
