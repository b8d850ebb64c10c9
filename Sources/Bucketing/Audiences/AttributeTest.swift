import Chronology
public import JSON

/// One condition on one attribute of the user. A class, because each evaluation takes it out of a ``Condition``, and copies
/// of its many parts would cost more than the comparison.
package final class AttributeCondition: Sendable {
    /// The name of the attribute; `nil` if the condition has none, so that no user has the attribute.
    package let name: String?
    package let kind: Kind

    package enum Kind: Sendable {
        case test(AttributeTest)
        /// Whether the request lists this segment among the user's.
        case qualified(Identifier)
        case unknownType(String)
        case unknownMatch(String)
    }

    /// Compiles `{"type", "name", "match", "value"}`.
    ///
    /// - Parameter dialect: which tests the condition may have.
    init(_ object: JSONObject, _ dialect: ConditionDialect) {
        name = object["name"]?.string
        if dialect == .segment, let test = object.textTest {
            kind = .test(.text(test))
            return
        }
        let type = object["type"]
        guard let type = type?.string, type == "custom_attribute" || type == "third_party_dimension" else {
            kind = .unknownType(type?.string ?? "")
            return
        }
        let match = object["match"] ?? .null
        kind = Self.kind(match: match.isNull ? "exact" : match.string ?? "", value: object["value"] ?? .null)
    }

    private static func kind(match: String, value: JSONValue) -> Kind {
        if match == "qualified" { return value.string.map { .qualified(Identifier($0)) } ?? .test(.unsupportedValue) }
        return AttributeTest(match: match, value: value).map { .test($0) } ?? .unknownMatch(match)
    }

    func evaluate(for user: User, _ reasons: inout Reasons) -> Bool? {
        switch kind {
        case .test(let test):
            if user.hasUnknownAttributes, isMissing(for: user) { return nil }
            return evaluate(test, user)
        case .qualified(let segment):
            let isQualified = user.qualifiedSegments.contains(segment)
            return !isQualified && user.hasUnknownAttributes ? nil : isQualified
        case .unknownType(let type):
            reasons.add("unable to evaluate condition of type \"\(type)\"")
            return nil
        case .unknownMatch(let match):
            reasons.add("invalid Condition matcher \"\(match)\"")
            return nil
        }
    }

    /// An attribute in the request takes precedence over the stored one, even if it is `null`.
    private func evaluate(_ test: AttributeTest, _ user: User) -> Bool? {
        if let name, let given = user.attributes[name] { return test.evaluate(given) }
        if let name, let stored = user.storedAttributes { return stored.evaluate(test, attribute: Identifier(name)) }
        return test.evaluate(JSONValue?.none)
    }

    /// Whether neither the request nor the stored attributes have a value.
    func isMissing(for user: User) -> Bool {
        evaluate(.exists, user) != true
    }
}

/// A test on the value of an attribute, compiled from the `match` and `value` of a condition.
public enum AttributeTest: Sendable {
    case exists
    case equalsString(String)
    case equalsBool(Bool)
    case equalsNumber(Double)
    case number(Comparison, Double)
    /// Compares a stored point in time with a time in the same format. The reference SDK compares numbers only, so the
    /// result for an attribute of a request is unknown.
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
            } else if match.hasPrefix("semver_"), let comparison = Comparison(rawValue: String(match.dropFirst(7))) {
                self =
                    value.string.flatMap { SemanticVersion($0) }.map { .version(comparison, $0) } ?? .unsupportedValue
            } else {
                return nil
            }
        }
    }

    private static func exact(_ value: JSONValue) -> AttributeTest {
        switch value {
        case .string(let text): .equalsString(text)
        case .bool(let bool): .equalsBool(bool)
        default: value.usableNumber.map { .equalsNumber($0) } ?? .unsupportedValue
        }
    }

    private static func order(_ comparison: Comparison, _ value: JSONValue) -> AttributeTest {
        if let text = value.string { return .moment(comparison, Instant(rfc3339: text)?.rfc3339 ?? text) }
        return value.usableNumber.map { .number(comparison, $0) } ?? .unsupportedValue
    }

    /// Tests a value.
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

extension JSONObject {
    /// The test of a condition, if SDKs do not know it; `nil` also for a pattern that cannot be used.
    fileprivate var textTest: TextTest? {
        guard let value = self["value"]?.string else { return nil }
        return try? TextTest(
            match: self["match"]?.string ?? "exact", value: value, ignoresCase: self["ignore_case"] == true)
    }
}

extension AttributeTest {
    /// The relation that must hold between a value and that of the condition.
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

/// The value of an attribute as tests see it, from the JSON of a request or from a stored record. Each member is `nil`
/// if the value has another type.
public protocol ConditionOperand {
    var isNull: Bool { get }
    var bool: Bool? { get }
    /// A number from -2^53 to 2^53. The reference SDK accepts no others.
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

    public func momentOrder(to text: String) -> Int? { nil }
}
