public import Foundation

/// What an attribute of a user may be. The server's schema says which of these an attribute takes.
///
/// ```swift
/// let attributes: [String: AttributeValue] = ["country": "de", "age": 30, "is_member": true]
/// ```
public enum AttributeValue: Sendable {
    /// Also a country, a date (`yyyy-mm-dd`), a time (`HH:MM`), a timestamp, or one of a selection.
    case string(String)
    case integer(Int64)
    case number(Double)
    case bool(Bool)
    /// Several of a selection.
    case list([String])

    /// A moment, as RFC 3339 writes it in UTC.
    public static func timestamp(_ date: Date) -> AttributeValue {
        .string(date.rfc3339)
    }
}

extension AttributeValue: Equatable {
    /// Texts are equal when their bytes are: how a letter is composed makes a difference, as it does to the server.
    public static func == (left: AttributeValue, right: AttributeValue) -> Bool {
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

extension AttributeValue: Codable {
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

extension AttributeValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral
{
    public init(stringLiteral value: String) { self = .string(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .number(value) }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(arrayLiteral elements: String...) { self = .list(elements) }
}
