import Chronology
public import JSON

/// A test on the value of an attribute, compiled from the `match` and `value` of a condition.
///
/// A test can be applied to any ``ConditionOperand``: to the JSON of a request, and to stored attributes in the form
/// that the store has them, so that no JSON has to be made for a decision.
public enum AttributeTest: Sendable {
    case exists
    case equalsString(String)
    case equalsBool(Bool)
    case equalsNumber(Double)
    case number(Comparison, Double)
    /// Compares a stored date or time with a text in the same format. An attribute of a request is never compared in
    /// this way, because SDKs compare numbers only: its result is unknown.
    case moment(Comparison, String)
    case contains(String)
    case version(Comparison, SemanticVersion)
    /// A test that SDKs do not know.
    indirect case text(TextTest)
    /// The condition's value does not suit its match; the result is always unknown.
    case unsupportedValue

    /// The values of `match` that ``init(match:value:)`` knows.
    package static let matches = [
        "exact", "exists", "substring", "gt", "ge", "lt", "le",
        "semver_eq", "semver_gt", "semver_ge", "semver_lt", "semver_le",
    ]

    /// - Returns: `nil` if `match` is not a test on an attribute's value.
    init?(match: String, value: JSONValue) {
        switch match {
        case "exact": self = Self.exact(value)
        case "exists": self = .exists
        case "substring": self = value.string.map { .contains($0) } ?? .unsupportedValue
        default:
            if let comparison = Comparison(rawValue: match), comparison != .equal {
                self = Self.order(comparison, value)
            } else if match.hasPrefix(Self.versionPrefix),
                let comparison = Comparison(rawValue: String(match.dropFirst(Self.versionPrefix.count)))
            {
                let version = value.string.flatMap { SemanticVersion($0) }
                self = version.map { .version(comparison, $0) } ?? .unsupportedValue
            } else {
                return nil
            }
        }
    }

    private static let versionPrefix = "semver_"

    private static func exact(_ value: JSONValue) -> AttributeTest {
        switch value {
        case .string(let text): .equalsString(text)
        case .bool(let bool): .equalsBool(bool)
        default: value.usableNumber.map { .equalsNumber($0) } ?? .unsupportedValue
        }
    }

    /// Compiles `gt`, `ge`, `lt` or `le`: a comparison of points in time if the value is a text, else of numbers.
    private static func order(_ comparison: Comparison, _ value: JSONValue) -> AttributeTest {
        // A point in time is written in the one form that stored times have. Any other text, such as a date, stays as
        // it is.
        if let text = value.string { return .moment(comparison, Instant(rfc3339: text)?.rfc3339 ?? text) }
        return value.usableNumber.map { .number(comparison, $0) } ?? .unsupportedValue
    }

    /// Tests the value of an attribute.
    ///
    /// - Parameter value: `nil` if the user does not have the attribute.
    /// - Returns: `nil` (unknown) if the value is missing or has the wrong type.
    @inlinable
    public func evaluate(_ value: (some ConditionOperand)?) -> Bool? {
        switch self {
        case .exists: !(value?.isNull ?? true)
        case .equalsString(let text): value?.equals(text)
        case .equalsBool(let bool): value?.bool.map { $0 == bool }
        case .equalsNumber(let number): value?.usableNumber.map { $0 == number }
        case .number(let comparison, let number): value?.usableNumber.map { comparison.holds($0, number) }
        case .moment(let comparison, let text): value?.momentOrder(to: text).map { comparison.holds($0, 0) }
        case .contains(let text): value?.contains(text)
        case .version(let comparison, let target):
            value?.text.flatMap { SemanticVersion($0) }
                .flatMap { $0.compared(toTarget: target) }
                .map { comparison.holds($0, 0) }
        case .text(let test): value?.meets(test)
        case .unsupportedValue: nil
        }
    }
}

extension AttributeTest {
    /// The relation that must hold between the user's value and the condition's. The raw values are those of `match`;
    /// `eq` exists as `semver_eq` only.
    public enum Comparison: String, Sendable {
        case equal = "eq"
        case greater = "gt"
        case greaterOrEqual = "ge"
        case less = "lt"
        case lessOrEqual = "le"

        @inlinable
        public func holds<Value: Comparable>(_ left: Value, _ right: Value) -> Bool {
            switch self {
            case .equal: left == right
            case .greater: left > right
            case .greaterOrEqual: left >= right
            case .less: left < right
            case .lessOrEqual: left <= right
            }
        }
    }
}

/// The value of an attribute as tests see it: JSON of a request, or a stored value. Each requirement returns `nil` if
/// the value has another type.
public protocol ConditionOperand {
    var isNull: Bool { get }
    var bool: Bool? { get }
    /// A number from -2^53 to 2^53. Optimizely's SDKs accept no others.
    var usableNumber: Double? { get }
    var text: String? { get }
    /// Whether the text, or one of several texts, is byte-identical to `text`.
    func equals(_ text: String) -> Bool?
    /// Whether the text, or one of several texts, contains the bytes of `text`.
    func contains(_ text: String) -> Bool?
    /// Whether the text, or one of several texts, meets a test.
    func meets(_ test: TextTest) -> Bool?
    /// Compares this point in time with another one in the same format: negative if it is earlier, 0 if equal, positive
    /// if later.
    func momentOrder(to text: String) -> Int?
}

extension ConditionOperand {
    /// Returns a number if it is from -2^53 to 2^53.
    @inlinable
    public static func usable(_ number: Double) -> Double? {
        abs(number) <= Double(1 << 53) ? number : nil
    }
}

extension JSONValue: ConditionOperand {
    public var usableNumber: Double? {
        switch self {
        case .integer(let integer): integer.magnitude <= 1 << 53 ? Double(integer) : nil
        case .number(let number): Self.usable(number)
        default: nil
        }
    }

    public var text: String? { string }

    public func equals(_ text: String) -> Bool? {
        string.map { $0.hasSameBytes(as: text) }
    }

    public func contains(_ text: String) -> Bool? {
        string.map { $0.containsBytes(of: text) }
    }

    public func meets(_ test: TextTest) -> Bool? {
        guard var text = string else { return nil }
        return text.withUTF8 { test.holds(UnsafeRawBufferPointer($0)) }
    }

    // JSON has no type for points in time.
    public func momentOrder(to text: String) -> Int? { nil }
}
