import JSON

/// What a condition asks of the value of an attribute, its own value parsed beforehand.
public enum AttributeTest: Sendable {
    case exists
    case equalsString(String)
    case equalsBool(Bool)
    case equalsNumber(Double)
    case number(Comparison, Double)
    /// How a point in time compares with a text of the same form. The reference SDK compares only numbers: to an
    /// attribute of a request the answer is unknown.
    case moment(Comparison, String)
    case contains(String)
    case version(Comparison, SemanticVersion)
    /// A value that the match cannot use.
    case unsupportedValue

    /// - Returns: `nil` for a match that is none on an attribute's value.
    init?(match: String, value: JSONValue) {
        switch match {
        case "exact": self = Self.exact(value)
        case "exists": self = .exists
        case "gt", "ge", "lt", "le": self = Self.order(Self.comparison(match), value)
        case "substring": self = value.string.map { .contains($0) } ?? .unsupportedValue
        case "semver_eq", "semver_gt", "semver_ge", "semver_lt", "semver_le":
            self =
                value.string.flatMap { SemanticVersion($0) }
                .map { .version(Self.comparison(String(match.dropFirst("semver_".count))), $0) } ?? .unsupportedValue
        default: return nil
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
        if let text = value.string { return .moment(comparison, UTCInstant(rfc3339: text)?.description ?? text) }
        return value.usableNumber.map { .number(comparison, $0) } ?? .unsupportedValue
    }

    private static func comparison(_ match: String) -> Comparison {
        switch match {
        case "gt": .greater
        case "ge": .greaterOrEqual
        case "lt": .less
        case "le": .lessOrEqual
        default: .equal
        }
    }

    /// - Parameter value: `nil` if the user has none.
    /// - Returns: `nil` where the value cannot answer the test.
    @inlinable
    public func answer(_ value: (some ConditionOperand)?) -> Bool? {
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
        case .unsupportedValue: nil
        }
    }
}

extension AttributeTest {
    /// How two values must compare.
    public enum Comparison: Sendable {
        case equal
        case greater
        case greaterOrEqual
        case less
        case lessOrEqual

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
