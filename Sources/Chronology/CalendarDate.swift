/// A day of the proleptic Gregorian calendar.
package struct CalendarDate: Sendable {
    /// The years that four digits can express.
    static let years = 0...9999

    let year: Int
    let month: Int
    let day: Int

    /// - Returns: `nil` if the calendar has no such day, or the year is not one of ``years``.
    init?(year: Int, month: Int, day: Int) {
        guard Self.years.contains(year), (1...12).contains(month), (1...Self.days(in: month, of: year)).contains(day)
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

    // MARK: Day numbers

    // The two conversions follow `days_from_civil` and `civil_from_days` of Howard Hinnant, "chrono-Compatible
    // Low-Level Date Algorithms". Both let the year begin in March, so that the leap day is the last day of the year.
    // The days of a month before it in such a year are then a linear function: (153 · month + 2) / 5, with March as
    // month 0.

    /// The calendar repeats after an era of 400 years.
    private static let yearsOfEra = 400
    private static let daysOfEra: Int64 = 146_097
    /// From 0000-03-01, on which an era begins, to 1970-01-01.
    private static let daysBefore1970: Int64 = 719_468

    /// Days since 1970-01-01.
    var daysSince1970: Int64 {
        // One era is added here and subtracted below, because January and February of the year 0 belong to the year -1.
        let shiftedYear = year + Self.yearsOfEra - (month <= 2 ? 1 : 0)
        let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
        let days = shiftedYear * 365 + shiftedYear / 4 - shiftedYear / 100 + shiftedYear / 400 + dayOfYear
        return Int64(days) - Self.daysBefore1970 - Self.daysOfEra
    }

    /// - Parameter days: a day that an ``Instant`` can have. Counts near the limits of 64 bits would overflow.
    init(daysSince1970 days: Int64) {
        let (era, rest) = (days + Self.daysBefore1970).floored(dividedBy: Self.daysOfEra)
        let dayOfEra = Int(rest)
        // Subtracts the leap days before the day, so that each year counts 365 days.
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        year = Int(era) * Self.yearsOfEra + yearOfEra + (month <= 2 ? 1 : 0)
        day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    }
}

extension CalendarDate: CustomStringConvertible {
    /// `yyyy-mm-dd`
    package var description: String {
        var text: [UInt8] = []
        write(to: &text)
        return String(decoding: text, as: UTF8.self)
    }

    /// Appends `yyyy-mm-dd`.
    func write(to text: inout [UInt8]) {
        text.append(year, width: 4)
        text.append(month, width: 2, after: "-")
        text.append(day, width: 2, after: "-")
    }
}

extension [UInt8] {
    /// Appends a separator and the decimal digits of a number, with leading zeros up to `width` digits.
    mutating func append(_ number: Int, width: Int, after separator: Unicode.Scalar? = nil) {
        if let separator { append(UInt8(ascii: separator)) }
        if number < 0 { append(UInt8(ascii: "-")) }
        var rest = number.magnitude
        var digitCount = 0
        repeat {
            append(UInt8(ascii: "0") + UInt8(rest % 10))
            rest /= 10
            digitCount += 1
        } while rest > 0 || digitCount < width
        // The last digit came first.
        self[(count - digitCount)...].reverse()
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

    /// Parses one digit; `nil` if the next byte is none.
    package mutating func digit() -> Int? {
        guard let byte = rest.first, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
        rest = rest.dropFirst()
        return Int(byte - UInt8(ascii: "0"))
    }

    /// Skips the next byte if it is one of `marks`.
    ///
    /// - Returns: whether a byte was skipped.
    package mutating func skip(_ marks: StaticString) -> Bool {
        take(marks) != nil
    }

    /// Takes the next byte if it is one of `marks`; `nil` otherwise.
    package mutating func take(_ marks: StaticString) -> UInt8? {
        guard let byte = rest.first, marks.withUTF8Buffer({ $0.contains(byte) }) else { return nil }
        rest = rest.dropFirst()
        return byte
    }
}
