package import Chronology

/// A JSON value (RFC 8259).
///
/// `==` compares how values are written: `1` and `1.0` differ, strings are compared byte by byte, and the order of
/// members counts. To compare numbers by value use ``double``.
public enum JSONValue: Sendable {
    case null
    case bool(Bool)
    /// A number written without fraction and exponent that fits 64 bits.
    case integer(Int64)
    /// Any other number; always finite in a parsed text.
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object(JSONObject)
}

extension JSONValue {
    public var bool: Bool? {
        if case .bool(let value) = self { value } else { nil }
    }

    public var integer: Int64? {
        if case .integer(let value) = self { value } else { nil }
    }

    /// The number, in whichever form it was written.
    public var double: Double? {
        switch self {
        case .integer(let value): Double(value)
        case .number(let value): value
        default: nil
        }
    }

    public var string: String? {
        if case .string(let value) = self { value } else { nil }
    }

    public var array: [JSONValue]? {
        if case .array(let value) = self { value } else { nil }
    }

    public var object: JSONObject? {
        if case .object(let value) = self { value } else { nil }
    }

    /// Returns a number in its shortest form: as an integer if it has no fraction, so that 18.0 is written as `18`.
    public static func shortest(_ number: Double) -> JSONValue {
        Int64(exactly: number).map { .integer($0) } ?? .number(number)
    }

    public var isNull: Bool {
        if case .null = self { true } else { false }
    }

    /// The kind of value for error messages: "a string", "an object".
    public var kind: String {
        switch self {
        case .null: "null"
        case .bool: "a boolean"
        case .integer, .number: "a number"
        case .string: "a string"
        case .array: "an array"
        case .object: "an object"
        }
    }
}

extension JSONValue: Equatable {
    public static func == (left: Self, right: Self) -> Bool {
        switch (left, right) {
        case (.null, .null): true
        case (.bool(let left), .bool(let right)): left == right
        case (.integer(let left), .integer(let right)): left == right
        case (.number(let left), .number(let right)): left == right
        case (.string(let left), .string(let right)): left.hasSameBytes(as: right)
        case (.array(let left), .array(let right)): left == right
        case (.object(let left), .object(let right)): left == right
        default: false
        }
    }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral,
    ExpressibleByFloatLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral, ExpressibleByNilLiteral
{
    public init(stringLiteral value: String) { self = .string(value) }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .number(value) }
    public init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
    public init(nilLiteral: ()) { self = .null }

    /// The last value of a duplicate key wins.
    public init(dictionaryLiteral elements: (String, JSONValue)...) {
        var object = JSONObject()
        for (key, value) in elements {
            object[key] = value
        }
        self = .object(object)
    }
}

// Times are stored as milliseconds since 1970.
extension JSONValue {
    package static func instant(_ time: Instant) -> JSONValue { .integer(time.milliseconds) }
    package var instant: Instant? { integer.map { Instant(milliseconds: $0) } }
}
