import Storage

extension Timestamp {
    /// A time as RFC 3339 §5.6 writes it: `2026-01-31T12:00:00.5+01:00`. What is finer than milliseconds is dropped.
    ///
    /// - Returns: `nil` for anything else, also for a day that no month has, and for a leap second.
    init?(rfc3339 text: String) {
        var bytes = text.utf8.map { $0 }[...]
        func number(_ digits: Int) -> Int64? {
            guard bytes.count >= digits else { return nil }
            var value: Int64 = 0
            for byte in bytes.prefix(digits) {
                guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
                value = value * 10 + Int64(byte - UInt8(ascii: "0"))
            }
            bytes = bytes.dropFirst(digits)
            return value
        }
        func skip(_ choices: String) -> UInt8? {
            guard let byte = bytes.first, choices.utf8.contains(byte) else { return nil }
            bytes = bytes.dropFirst()
            return byte
        }
        guard let year = number(4), skip("-") != nil, let month = number(2), skip("-") != nil, let day = number(2),
            skip("Tt ") != nil, let hour = number(2), skip(":") != nil, let minute = number(2), skip(":") != nil,
            let second = number(2), hour < 24, minute < 60, second < 60,
            (1...12).contains(month), (1...Self.days(of: month, year)).contains(day)
        else { return nil }
        var milliseconds: Int64 = 0
        if skip(".") != nil {
            let fraction = bytes.prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
            guard (1...9).contains(fraction.count) else { return nil }
            for place in 0..<3 {
                let digit = place < fraction.count ? fraction[fraction.startIndex + place] - UInt8(ascii: "0") : 0
                milliseconds = milliseconds * 10 + Int64(digit)
            }
            bytes = bytes.dropFirst(fraction.count)
        }
        var offset: Int64 = 0
        guard let zone = skip("Zz+-") else { return nil }
        if zone == UInt8(ascii: "+") || zone == UInt8(ascii: "-") {
            guard let hours = number(2), skip(":") != nil, let minutes = number(2), hours < 24, minutes < 60 else {
                return nil
            }
            offset = (hours * 60 + minutes) * (zone == UInt8(ascii: "-") ? -60 : 60)
        }
        guard bytes.isEmpty else { return nil }
        let seconds = Self.days(to: year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset
        self = seconds * 1_000 + milliseconds
    }

    private static func days(of month: Int64, _ year: Int64) -> Int64 {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// Days from 1970-01-01 in the proleptic Gregorian calendar: years are counted from March on, so that the leap
    /// day is the last.
    private static func days(to year: Int64, _ month: Int64, _ day: Int64) -> Int64 {
        let shifted = month <= 2 ? year - 1 : year
        let era = (shifted >= 0 ? shifted : shifted - 399) / 400
        let yearOfEra = shifted - era * 400
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }
}
