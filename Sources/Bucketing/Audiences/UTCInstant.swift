/// A point in time with millisecond precision, read and written in the format of RFC 3339.
public struct UTCInstant: Sendable, Hashable {
    /// Milliseconds since 1970-01-01T00:00:00Z, from year 0 to year 9999.
    public let milliseconds: Int64
    private let text: String

    /// - Returns: `nil` if the year is not between 0 and 9999.
    public init?(milliseconds: Int64) {
        let dayLength: Int64 = 86_400_000
        var (day, time) = milliseconds.quotientAndRemainder(dividingBy: dayLength)
        if time < 0 { (day, time) = (day - 1, time + dayLength) }
        guard let date = CalendarDate(daysSince1970: Int(day)) else { return nil }
        self.milliseconds = milliseconds
        let clock = [time / 3_600_000, time / 60_000 % 60, time / 1_000 % 60].map { Int($0).padded(to: 2) }
        text = "\(date)T\(clock.joined(separator: ":")).\(Int(time % 1_000).padded(to: 3))Z"
    }

    /// Parses a date-time with `Z` or an offset (RFC 3339 §5.6). A space may replace the `T`, as the RFC's note allows.
    /// Fractions are truncated to milliseconds.
    ///
    /// - Returns: `nil` if the text is malformed, or has second 60: Unix time cannot represent leap seconds.
    public init?(rfc3339 text: String) {
        let bytes = Array(text.utf8)
        guard bytes.count >= 20, let date = CalendarDate(bytes[..<10]) else { return nil }
        var reader = DigitReader(bytes[10...])
        guard reader.skip("Tt "), let hour = reader.number(2), hour < 24, reader.skip(":"),
            let minute = reader.number(2), minute < 60, reader.skip(":"), let second = reader.number(2), second < 60,
            let fraction = Self.fraction(&reader), let offset = Self.offset(&reader), reader.isAtEnd
        else { return nil }
        let minutes = (date.daysSince1970 * 24 + hour) * 60 + minute - offset
        self.init(milliseconds: Int64(minutes * 60 + second) * 1_000 + Int64(fraction))
    }

    /// Parses a fraction of a second, in milliseconds; 0 if there is none.
    private static func fraction(_ reader: inout DigitReader<ArraySlice<UInt8>>) -> Int? {
        guard reader.skip(".") else { return 0 }
        var milliseconds = 0
        var digits = 0
        while let digit = reader.digit() {
            if digits < 3 { milliseconds = milliseconds * 10 + digit }
            digits += 1
        }
        guard digits > 0 else { return nil }
        for _ in min(digits, 3)..<3 { milliseconds *= 10 }
        return milliseconds
    }

    /// Parses the offset from UTC, in minutes; positive is east.
    private static func offset(_ reader: inout DigitReader<ArraySlice<UInt8>>) -> Int? {
        guard let mark = reader.take("Zz+-") else { return nil }
        if mark | 0x20 == UInt8(ascii: "z") { return 0 }
        guard let hours = reader.number(2), hours < 24, reader.skip(":"), let minutes = reader.number(2), minutes < 60
        else { return nil }
        return (mark == UInt8(ascii: "-") ? -1 : 1) * (hours * 60 + minutes)
    }
}

extension UTCInstant: CustomStringConvertible {
    /// In UTC with milliseconds, as in `2026-01-31T12:00:00.000Z`. Sorting these texts sorts by time.
    public var description: String { text }
}

/// A day of the proleptic Gregorian calendar, from year 0 to year 9999.
package struct CalendarDate: Sendable {
    let year: Int
    let month: Int
    let day: Int

    /// - Returns: `nil` if there is no such day.
    init?(year: Int, month: Int, day: Int) {
        guard (0...9999).contains(year), (1...12).contains(month), (1...Self.days(in: month, of: year)).contains(day)
        else { return nil }
        self.year = year
        self.month = month
        self.day = day
    }

    /// Parses `yyyy-mm-dd`.
    package init?(_ text: some Collection<UInt8>) {
        var digits = DigitReader(text)
        guard let year = digits.number(4), digits.skip("-"), let month = digits.number(2), digits.skip("-"),
            let day = digits.number(2), digits.isAtEnd
        else { return nil }
        self.init(year: year, month: month, day: day)
    }

    private static func days(in month: Int, of year: Int) -> Int {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// Counts years from March, so that a leap day is the last day of its year. 400 years have 146,097 days.
    var daysSince1970: Int {
        let shifted = year + 400 - (month <= 2 ? 1 : 0)
        let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
        return shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + dayOfYear - 719_468 - 146_097
    }

    /// - Returns: `nil` if the year is not between 0 and 9999.
    init?(daysSince1970 days: Int) {
        guard (-719_528...2_932_896).contains(days) else { return nil }
        let sinceMarch0 = days + 719_468 + 146_097
        let era = sinceMarch0 / 146_097
        let dayOfEra = sinceMarch0 % 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        self.init(
            year: yearOfEra + (era - 1) * 400 + (month <= 2 ? 1 : 0), month: month,
            day: dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
    }
}

extension CalendarDate: CustomStringConvertible {
    /// `yyyy-mm-dd`
    package var description: String {
        "\(year.padded(to: 4))-\(month.padded(to: 2))-\(day.padded(to: 2))"
    }
}

extension Int {
    /// Returns the decimal digits, with leading zeros.
    func padded(to width: Int) -> String {
        let digits = String(self)
        return String(repeating: "0", count: Swift.max(0, width - digits.count)) + digits
    }
}

/// Parses numbers of fixed width and the separators between them, as in dates and times.
package struct DigitReader<Text: Collection<UInt8>> {
    private var rest: Text.SubSequence

    package init(_ text: Text) {
        rest = text[...]
    }

    package var isAtEnd: Bool { rest.isEmpty }

    /// Parses a number of `width` digits.
    ///
    /// - Returns: `nil` if there are fewer digits.
    package mutating func number(_ width: Int) -> Int? {
        var number = 0
        for _ in 0..<width {
            guard let digit = digit() else { return nil }
            number = number * 10 + digit
        }
        return number
    }

    /// Parses one digit.
    package mutating func digit() -> Int? {
        guard let byte = rest.first, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
        rest = rest.dropFirst()
        return Int(byte - UInt8(ascii: "0"))
    }

    /// Skips the next byte if it is one of `marks`.
    ///
    /// - Returns: whether it was.
    package mutating func skip(_ marks: StaticString) -> Bool {
        take(marks) != nil
    }

    /// Takes the next byte if it is one of `marks`.
    package mutating func take(_ marks: StaticString) -> UInt8? {
        guard let byte = rest.first, marks.withUTF8Buffer({ $0.contains(byte) }) else { return nil }
        rest = rest.dropFirst()
        return byte
    }
}
