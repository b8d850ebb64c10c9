/// A point in time, written as RFC 3339 has it.
public struct UTCInstant: Sendable, Hashable {
    /// Milliseconds since 1970-01-01T00:00:00Z; the year has four digits.
    public let milliseconds: Int64
    private let text: String

    /// - Returns: `nil` unless the year has four digits.
    public init?(milliseconds: Int64) {
        let dayLength: Int64 = 86_400_000
        var (day, time) = milliseconds.quotientAndRemainder(dividingBy: dayLength)
        if time < 0 { (day, time) = (day - 1, time + dayLength) }
        guard let date = CalendarDate(daysSince1970: Int(day)) else { return nil }
        self.milliseconds = milliseconds
        let clock = [time / 3_600_000, time / 60_000 % 60, time / 1_000 % 60].map { Int($0).padded(to: 2) }
        text = "\(date)T\(clock.joined(separator: ":")).\(Int(time % 1_000).padded(to: 3))Z"
    }

    /// Reads a date-time of RFC 3339 §5.6, which has an offset or `Z`; a space may stand for the `T`, as its note allows.
    /// Of a fraction the first three digits count.
    ///
    /// - Returns: `nil` for anything else, and for the second 60 of a leap second, which has no place of its own in a
    ///   count since 1970.
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

    /// Milliseconds; 0 when there is no fraction.
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

    /// Minutes east of Greenwich.
    private static func offset(_ reader: inout DigitReader<ArraySlice<UInt8>>) -> Int? {
        guard let mark = reader.taken("Zz+-") else { return nil }
        if mark | 0x20 == UInt8(ascii: "z") { return 0 }
        guard let hours = reader.number(2), hours < 24, reader.skip(":"), let minutes = reader.number(2), minutes < 60
        else { return nil }
        return (mark == UInt8(ascii: "-") ? -1 : 1) * (hours * 60 + minutes)
    }
}

extension UTCInstant: CustomStringConvertible {
    /// In UTC with milliseconds: `2026-01-31T12:00:00.000Z`. The order of these texts is the order of time.
    public var description: String { text }
}
