import Glibc

/// The `Date` field (RFC 9110 §6.6.1), formatted anew once a second.
struct DateCache {
    private var second: time_t = -1
    private(set) var line: [UInt8] = []

    mutating func refresh() {
        let now = time(nil)
        guard now != second else { return }
        second = now
        var seconds = now
        var parts = tm()
        gmtime_r(&seconds, &parts)
        let days = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        func padded(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
        let text =
            "Date: \(days[Int(parts.tm_wday)]), \(padded(parts.tm_mday)) \(months[Int(parts.tm_mon)]) "
            + "\(Int(parts.tm_year) + 1900) \(padded(parts.tm_hour)):\(padded(parts.tm_min)):\(padded(parts.tm_sec)) GMT\r\n"
        line = Array(text.utf8)
    }
}
