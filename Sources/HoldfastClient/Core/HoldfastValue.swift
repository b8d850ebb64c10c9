/// A JSON value, such as the value of a flag's variable.
public enum HoldfastValue: Sendable, Hashable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([HoldfastValue])
    case object([String: HoldfastValue])

    public var boolValue: Bool? { if case .bool(let value) = self { value } else { nil } }

    public var stringValue: String? { if case .string(let value) = self { value } else { nil } }

    /// The value as an integer; a number without fractional part counts.
    public var intValue: Int? {
        switch self {
        case .integer(let value): Int(exactly: value)
        case .number(let value): Int(exactly: value)
        default: nil
        }
    }

    public var doubleValue: Double? {
        switch self {
        case .integer(let value): Double(value)
        case .number(let value): value
        default: nil
        }
    }

    public var arrayValue: [HoldfastValue]? { if case .array(let value) = self { value } else { nil } }

    public var objectValue: [String: HoldfastValue]? { if case .object(let value) = self { value } else { nil } }

    /// The member of an object; `nil` if it is missing or the value is not an object.
    public subscript(_ name: String) -> HoldfastValue? { objectValue?[name] }
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
