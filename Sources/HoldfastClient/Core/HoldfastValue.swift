import Foundation

/// A JSON value, such as the value of a flag's variable.
public enum HoldfastValue: Sendable, Hashable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([HoldfastValue])
    case object([String: HoldfastValue])

    /// The value as a boolean; `nil` for any other type.
    public var boolValue: Bool? { if case .bool(let value) = self { value } else { nil } }

    /// The value as a string; `nil` for any other type.
    public var stringValue: String? { if case .string(let value) = self { value } else { nil } }

    /// The value as an integer. A number without fractional part counts as an integer. `nil` for any other value.
    public var intValue: Int? {
        switch self {
        case .integer(let value): Int(exactly: value)
        case .number(let value): Int(exactly: value)
        default: nil
        }
    }

    /// The value as a number; `nil` for any type other than an integer or a number.
    public var doubleValue: Double? {
        switch self {
        case .integer(let value): Double(value)
        case .number(let value): value
        default: nil
        }
    }

    /// The elements of an array; `nil` for any other type.
    public var arrayValue: [HoldfastValue]? { if case .array(let value) = self { value } else { nil } }

    /// The members of an object; `nil` for any other type.
    public var objectValue: [String: HoldfastValue]? { if case .object(let value) = self { value } else { nil } }

    /// The member of an object; `nil` if it is missing or the value is not an object.
    public subscript(_ name: String) -> HoldfastValue? { objectValue?[name] }
}

extension HoldfastValue {
    /// The value as text. A string is unchanged, and a number or a boolean is written as in JSON. `nil` for any other
    /// type.
    var text: String? {
        switch self {
        case .string(let value): value
        case .bool(let value): value ? "true" : "false"
        case .integer(let value): "\(value)"
        case .number(let value): "\(value)"
        case .null, .array, .object: nil
        }
    }

    /// The value as a boolean. The strings `true` and `on` count as true, and the strings `false` and `off` as false.
    /// `nil` for any other value.
    var bool: Bool? {
        switch self {
        case .bool(let value): value
        case .string("true"), .string("on"): true
        case .string("false"), .string("off"): false
        default: nil
        }
    }

    /// The value as an integer; a string that holds one counts.
    var int: Int? { intValue ?? stringValue.flatMap { Int($0) } }

    /// The value as a number; a string that holds a finite one counts.
    var double: Double? { doubleValue ?? stringValue.flatMap { Double($0) }.flatMap { $0.isFinite ? $0 : nil } }

    /// The value decoded as a type; a string that holds JSON counts.
    func decoded<Value: Decodable>(as type: Value.Type) -> Value? {
        let decoder = JSONDecoder()
        if let data = try? JSONEncoder().encode(self), let value = try? decoder.decode(type, from: data) {
            return value
        }
        return stringValue.flatMap { try? decoder.decode(type, from: Data($0.utf8)) }
    }
}

extension HoldfastValue: Codable {
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .integer(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let value = try? container.decode([HoldfastValue].self) {
            self = .array(value)
        } else {
            self = .object(try container.decode([String: HoldfastValue].self))
        }
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .string(let value): try container.encode(value)
        case .array(let value): try container.encode(value)
        case .object(let value): try container.encode(value)
        }
    }
}

extension HoldfastValue: ExpressibleByNilLiteral, ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral,
    ExpressibleByFloatLiteral, ExpressibleByStringLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    public init(nilLiteral: ()) { self = .null }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .number(value) }
    public init(stringLiteral value: String) { self = .string(value) }
    public init(arrayLiteral elements: HoldfastValue...) { self = .array(elements) }
    public init(dictionaryLiteral elements: (String, HoldfastValue)...) {
        self = .object(Dictionary(elements) { _, last in last })
    }
}
