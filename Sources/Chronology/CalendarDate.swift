/// A day of the proleptic Gregorian calendar.
package struct CalendarDate: Sendable {
    /// The years that texts have.
    static let years = 0...9999

    let year: Int
    let month: Int
    let day: Int

    /// - Returns: `nil` if there is no such day in ``years``.
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

    // Both ways count years from March, so that a leap day is the last day of its year. 400 years, an era, have 146,097 days.

    /// Days since 1970-01-01.
    var daysSince1970: Int64 {
        let shifted = year + 400 - (month <= 2 ? 1 : 0)
        let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
        return Int64(shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + dayOfYear - 719_468 - 146_097)
    }

    /// - Parameter days: at most those of a time in milliseconds.
    init(daysSince1970 days: Int64) {
        let (era, rest) = (days + 719_468).floored(dividedBy: 146_097)
        let dayOfEra = Int(rest)
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        year = Int(era) * 400 + yearOfEra + (month <= 2 ? 1 : 0)
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

    func write(to text: inout [UInt8]) {
        text.append(year, width: 4)
        text.append(month, width: 2, after: "-")
        text.append(day, width: 2, after: "-")
    }
}

extension [UInt8] {
    /// Appends a separator and the decimal digits of a number, with leading zeros.
    mutating func append(_ number: Int, width: Int, after separator: Unicode.Scalar? = nil) {
        if let separator { append(UInt8(ascii: separator)) }
        if number < 0 { append(UInt8(ascii: "-")) }
        var (rest, digits) = (number.magnitude, 0)
        repeat {
            append(UInt8(ascii: "0") + UInt8(rest % 10))
            (rest, digits) = (rest / 10, digits + 1)
        } while rest > 0 || digits < width
        self[(count - digits)...].reverse()
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
