/// A length of time, in whole milliseconds; negative if it leads to the past. Arithmetic saturates, see ``Instant``.
public struct TimeSpan: Sendable {
    public let milliseconds: Int64

    @inlinable
    public init(milliseconds: Int64) {
        self.milliseconds = milliseconds
    }

    @inlinable public static var zero: TimeSpan { TimeSpan(milliseconds: 0) }
    /// The longest length; practically forever.
    @inlinable public static var longest: TimeSpan { TimeSpan(milliseconds: .max) }

    @inlinable
    public static func milliseconds(_ count: Int64) -> TimeSpan { TimeSpan(milliseconds: count) }

    @inlinable
    public static func seconds(_ count: Int64) -> TimeSpan { .milliseconds(1_000) * count }

    @inlinable
    public static func minutes(_ count: Int64) -> TimeSpan { .milliseconds(60_000) * count }

    @inlinable
    public static func hours(_ count: Int64) -> TimeSpan { .milliseconds(3_600_000) * count }

    @inlinable
    public static func days(_ count: Int64) -> TimeSpan { .milliseconds(86_400_000) * count }

    /// Rounds to the nearest millisecond.
    public init(seconds: Double) {
        milliseconds = Int64(rounding: seconds * 1_000)
    }

    /// Rounds to the nearest millisecond.
    public init(days: Double) {
        milliseconds = Int64(rounding: days * 86_400_000)
    }

    /// Rounds toward zero.
    public init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        self = .seconds(seconds) + .milliseconds(attoseconds / 1_000_000_000_000_000)
    }

    private static let units: [(suffix: Character, span: TimeSpan)] = [
        ("s", .seconds(1)), ("m", .minutes(1)), ("h", .hours(1)), ("d", .days(1)),
    ]

    /// Parses a whole number with its unit, such as `90s`, `30m`, `12h` or `2d`.
    ///
    /// - Returns: `nil` for any other text, or if the time exceeds 64 bits.
    public init?(_ text: String) {
        guard let unit = Self.units.first(where: { $0.suffix == text.last }) else { return nil }
        let digits = text.dropLast()
        guard digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let number = Int64(digits) else { return nil }
        let (product, overflow) = number.multipliedReportingOverflow(by: unit.span.milliseconds)
        guard !overflow else { return nil }
        milliseconds = product
    }

    public var inSeconds: Double { Double(milliseconds) / 1_000 }
    public var inDays: Double { Double(milliseconds) / 86_400_000 }
}

extension TimeSpan: Hashable, Comparable {
    // Written out, because other modules cannot inline the operators that the compiler would synthesize.

    @inlinable
    public static func == (left: TimeSpan, right: TimeSpan) -> Bool { left.milliseconds == right.milliseconds }

    @inlinable
    public static func < (left: TimeSpan, right: TimeSpan) -> Bool { left.milliseconds < right.milliseconds }

    @inlinable
    public func hash(into hasher: inout Hasher) { hasher.combine(milliseconds) }
}

extension TimeSpan: AdditiveArithmetic {
    @inlinable
    public static func + (left: TimeSpan, right: TimeSpan) -> TimeSpan {
        TimeSpan(milliseconds: left.milliseconds.saturatingAdding(right.milliseconds))
    }

    @inlinable
    public static func - (left: TimeSpan, right: TimeSpan) -> TimeSpan {
        TimeSpan(milliseconds: left.milliseconds.saturatingSubtracting(right.milliseconds))
    }

    @inlinable
    public static prefix func - (span: TimeSpan) -> TimeSpan { .zero - span }

    @inlinable
    public static func * (span: TimeSpan, factor: Int64) -> TimeSpan {
        TimeSpan(milliseconds: span.milliseconds.saturatingMultiplied(by: factor))
    }
}

extension TimeSpan: CustomStringConvertible {
    public var description: String { "\(milliseconds) ms" }
}

// MARK: Saturating arithmetic

extension Int64 {
    @inlinable
    func saturatingAdding(_ other: Int64) -> Int64 {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? (other < 0 ? .min : .max) : sum
    }

    @inlinable
    func saturatingSubtracting(_ other: Int64) -> Int64 {
        let (difference, overflow) = subtractingReportingOverflow(other)
        return overflow ? (other < 0 ? .max : .min) : difference
    }

    @inlinable
    func saturatingMultiplied(by other: Int64) -> Int64 {
        let (product, overflow) = multipliedReportingOverflow(by: other)
        return overflow ? ((self < 0) == (other < 0) ? .max : .min) : product
    }

    /// Rounds to the nearest integer. Saturates beyond 64 bits; `NaN` becomes 0.
    fileprivate init(rounding number: Double) {
        let rounded = number.rounded()
        if let integer = Int64(exactly: rounded) {
            self = integer
        } else if rounded.isNaN {
            self = 0
        } else {
            self = rounded > 0 ? .max : .min
        }
    }

    /// Divides by a positive divisor, rounding down, so that the remainder is never negative: days before 1970 count
    /// down from -1.
    func floored(dividedBy divisor: Int64) -> (quotient: Int64, remainder: Int64) {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}
