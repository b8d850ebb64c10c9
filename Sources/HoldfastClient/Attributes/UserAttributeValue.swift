public import Foundation

/// The value of a user attribute. The server's schema defines the type of each attribute.
///
/// ```swift
/// let attributes: [String: UserAttributeValue] = ["country": "de", "age": 30, "is_member": true]
/// ```
public enum UserAttributeValue: Sendable {
    /// A string, country, date (`yyyy-mm-dd`), time (`HH:MM`), timestamp, or one option of a selection.
    case string(String)
    case integer(Int64)
    case number(Double)
    case bool(Bool)
    /// Several options of a selection.
    case list([String])

    /// A time, stored in UTC (RFC 3339).
    public static func timestamp(_ date: Date) -> UserAttributeValue {
        .string(date.rfc3339)
    }

    /// A date as `yyyy-mm-dd`.
    public static func date(_ date: Date, timeZone: TimeZone = .current) -> UserAttributeValue {
        .string(date.formatted(Date.ISO8601FormatStyle(timeZone: timeZone).year().month().day()))
    }

    /// A time of the day as `HH:MM`, without time zone.
    public static func time(_ date: Date, timeZone: TimeZone = .current) -> UserAttributeValue {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = timeZone
        let parts = calendar.dateComponents([.hour, .minute], from: date)
        return time(hour: parts.hour ?? 0, minute: parts.minute ?? 0)
    }

    /// A time of the day as `HH:MM`.
    ///
    /// - Parameters:
    ///   - hour: 0 to 23.
    ///   - minute: 0 to 59.
    public static func time(hour: Int, minute: Int) -> UserAttributeValue {
        func digits(_ number: Int) -> String { number < 10 ? "0\(number)" : "\(number)" }
        return .string("\(digits(hour)):\(digits(minute))")
    }

    /// A country by its code of two letters (ISO 3166), which is stored in lower case.
    public static func country(_ code: String) -> UserAttributeValue {
        .string(code.lowercased())
    }

    /// Converts a value of any supported type: strings, booleans, numbers, dates (as timestamps), lists of strings, and
    /// their Objective-C classes; `nil` for others and for numbers that are not finite.
    public init?(_ value: Any) {
        switch value {
        case let value as UserAttributeValue: self = value
        case let value as String: self = .string(value)
        case let value as Date: self = .timestamp(value)
        case let value as [String]: self = .list(value)
        case let number as NSNumber where Self.isObject(value): self.init(number: number)
        case let value as Bool: self = .bool(value)
        case let value as any BinaryInteger:
            guard let integer = Int64(exactly: value) else { return nil }
            self = .integer(integer)
        case let value as Double where value.isFinite: self = .number(value)
        case let value as Float where value.isFinite: self = .number(Double(value))
        default: return nil
        }
    }

    /// Whether a value is an object, such as an `NSNumber`. On Darwin a Swift number would also match `as NSNumber`,
    /// because it is bridged.
    private static func isObject(_ value: Any) -> Bool {
        type(of: value) is AnyClass
    }

    /// Converts a number by the type code of its value (`@encode` of Objective-C): `c` and `B` are booleans, `f` and
    /// `d` are floating-point numbers, `Q` is `UInt64`, all others are integers.
    private init?(number: NSNumber) {
        switch String(cString: number.objCType) {
        case "c", "B": self = .bool(number.boolValue)
        case "f", "d":
            guard number.doubleValue.isFinite else { return nil }
            self = .number(number.doubleValue)
        case "Q":
            guard let integer = Int64(exactly: number.uint64Value) else { return nil }
            self = .integer(integer)
        default: self = .integer(number.int64Value)
        }
    }
}

extension UserAttributeValue: Equatable {
    /// Compares strings by their UTF-8 bytes, and an integer with a number by their values, as the server does.
    public static func == (left: UserAttributeValue, right: UserAttributeValue) -> Bool {
        switch (left, right) {
        case (.string(let left), .string(let right)): left.hasSameBytes(as: right)
        case (.integer(let left), .integer(let right)): left == right
        case (.number(let left), .number(let right)): left == right
        case (.integer(let left), .number(let right)), (.number(let right), .integer(let left)):
            Double(left) == right
        case (.bool(let left), .bool(let right)): left == right
        case (.list(let left), .list(let right)):
            left.count == right.count && zip(left, right).allSatisfy { $0.hasSameBytes(as: $1) }
        default: false
        }
    }
}

extension UserAttributeValue: Codable {
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else {
            self = .list(try container.decode([String].self))
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .string(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .bool(let value): try container.encode(value)
        case .list(let value): try container.encode(value)
        }
    }
}

extension UserAttributeValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral
{
    public init(stringLiteral value: String) { self = .string(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .number(value) }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(arrayLiteral elements: String...) { self = .list(elements) }
}
