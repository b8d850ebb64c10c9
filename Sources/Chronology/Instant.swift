/// A point in time, in whole milliseconds. The server computes with this type and with ``TimeSpan`` instead of
/// Foundation's `Date`.
///
/// Arithmetic saturates at ``distantPast`` and ``distantFuture`` instead of trapping, because times also come from
/// requests and databases, which can hold any number.
public struct Instant: Sendable {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    public let milliseconds: Int64

    /// - Parameter milliseconds: since 1970-01-01T00:00:00Z.
    @inlinable
    public init(milliseconds: Int64) {
        self.milliseconds = milliseconds
    }

    /// 1970-01-01T00:00:00Z.
    @inlinable public static var epoch: Instant { Instant(milliseconds: 0) }
    /// Before all other times.
    @inlinable public static var distantPast: Instant { Instant(milliseconds: .min) }
    /// After all other times.
    @inlinable public static var distantFuture: Instant { Instant(milliseconds: .max) }

    /// Whole seconds since 1970-01-01T00:00:00Z, rounded toward zero.
    @inlinable
    public var secondsSince1970: Int64 { milliseconds / 1_000 }

    /// - Parameter seconds: since 1970-01-01T00:00:00Z.
    public init(secondsSince1970 seconds: Int64) {
        self = Instant.epoch + TimeSpan.seconds(seconds)
    }
}

extension Instant: Hashable, Comparable {
    // Written out, because other modules cannot inline the operators that the compiler would synthesize.

    @inlinable
    public static func == (left: Instant, right: Instant) -> Bool { left.milliseconds == right.milliseconds }

    @inlinable
    public static func < (left: Instant, right: Instant) -> Bool { left.milliseconds < right.milliseconds }

    @inlinable
    public func hash(into hasher: inout Hasher) { hasher.combine(milliseconds) }
}

// MARK: Arithmetic

extension Instant {
    @inlinable
    public static func - (later: Instant, earlier: Instant) -> TimeSpan {
        TimeSpan(milliseconds: later.milliseconds.saturatingSubtracting(earlier.milliseconds))
    }

    @inlinable
    public static func + (time: Instant, span: TimeSpan) -> Instant {
        Instant(milliseconds: time.milliseconds.saturatingAdding(span.milliseconds))
    }

    @inlinable
    public static func - (time: Instant, span: TimeSpan) -> Instant {
        Instant(milliseconds: time.milliseconds.saturatingSubtracting(span.milliseconds))
    }

    @inlinable
    public static func += (time: inout Instant, span: TimeSpan) { time = time + span }

    @inlinable
    public static func -= (time: inout Instant, span: TimeSpan) { time = time - span }
}

// MARK: Days

extension Instant {
    private static let millisecondsOfDay: Int64 = 86_400_000

    /// Creates the time at which a day begins in UTC.
    ///
    /// - Parameter day: days since 1970-01-01.
    public init(day: Int64) {
        self = Instant.epoch + TimeSpan.days(day)
    }

    /// The UTC day of this time, in days since 1970-01-01.
    public var day: Int64 { milliseconds.floored(dividedBy: Self.millisecondsOfDay).quotient }

    /// The UTC day of this time: `2026-01-31`.
    public var date: String { CalendarDate(daysSince1970: day).description }
}

// MARK: RFC 3339

extension Instant {
    /// Parses a date-time with `Z` or an offset (RFC 3339 §5.6). A space may replace the `T`, as the RFC's note allows.
    /// Fractions are truncated to milliseconds.
    ///
    /// - Returns: `nil` if the text is malformed, if the year in UTC is not between 0 and 9999, or if the second is 60,
    ///   because Unix time cannot represent leap seconds.
    public init?(rfc3339 text: String) {
        let bytes = Array(text.utf8)
        guard bytes.count >= 20, let date = CalendarDate(bytes[..<10]) else { return nil }
        var reader = DigitReader(bytes[10...])
        guard reader.skip("Tt "), let hour = reader.number(2), hour < 24, reader.skip(":"),
            let minute = reader.number(2), minute < 60, reader.skip(":"), let second = reader.number(2), second < 60,
            let fraction = Self.fraction(&reader), let offset = Self.offset(&reader), reader.isAtEnd
        else { return nil }
        let minutes = (date.daysSince1970 * 24 + Int64(hour)) * 60 + Int64(minute - offset)
        milliseconds = (minutes * 60 + Int64(second)) * 1_000 + Int64(fraction)
        guard CalendarDate.years.contains(CalendarDate(daysSince1970: day).year) else { return nil }
    }

    /// Parses a fraction of a second such as `.25`.
    ///
    /// - Returns: the milliseconds; 0 if the text has no fraction, `nil` if no digit follows the point.
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

    /// Parses `Z`, or an offset from UTC such as `+01:00`.
    ///
    /// - Returns: the minutes, positive to the east; `nil` if the text is malformed.
    private static func offset(_ reader: inout DigitReader<ArraySlice<UInt8>>) -> Int? {
        guard let mark = reader.take("Zz+-") else { return nil }
        if mark == UInt8(ascii: "Z") || mark == UInt8(ascii: "z") { return 0 }
        guard let hours = reader.number(2), hours < 24, reader.skip(":"), let minutes = reader.number(2), minutes < 60
        else { return nil }
        return (mark == UInt8(ascii: "-") ? -1 : 1) * (hours * 60 + minutes)
    }

    /// The time in UTC with milliseconds: `2026-01-31T12:00:00.000Z`. The texts of the years 0 to 9999 sort like the
    /// times.
    public var rfc3339: String {
        let (day, time) = milliseconds.floored(dividedBy: Self.millisecondsOfDay)
        var text: [UInt8] = []
        text.reserveCapacity(24)
        CalendarDate(daysSince1970: day).write(to: &text)
        text.append(Int(time / 3_600_000), width: 2, after: "T")
        text.append(Int(time / 60_000 % 60), width: 2, after: ":")
        text.append(Int(time / 1_000 % 60), width: 2, after: ":")
        text.append(Int(time % 1_000), width: 3, after: ".")
        text.append(UInt8(ascii: "Z"))
        return String(decoding: text, as: UTF8.self)
    }
}

extension Instant: CustomStringConvertible {
    public var description: String { rfc3339 }
}
