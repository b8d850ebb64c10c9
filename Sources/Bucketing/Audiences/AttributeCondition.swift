/// One condition on one attribute of the user, its value parsed beforehand.
struct AttributeCondition: Sendable {
    /// The attribute; `nil` if the condition names none, which no user has.
    private let name: String?
    private let test: Test

    private enum Test: Sendable {
        case exists
        case equalsString(String)
        case equalsBool(Bool)
        case equalsNumber(Double)
        case number(Comparison, Double)
        case contains(String)
        case version(Comparison, SemanticVersion)
        case qualified(Identifier)
        case unknownType(String)
        case unknownMatch(String)
        /// A value that the match cannot use.
        case unsupportedValue
    }

    /// Compiles `{"type", "name", "match", "value"}`.
    init(_ object: JSONObject) {
        name = object["name"]?.string
        let type = object["type"]
        guard let type = type?.string, type == "custom_attribute" || type == "third_party_dimension" else {
            test = .unknownType(type?.string ?? "")
            return
        }
        let match = object["match"] ?? .null
        test = Self.test(match: match.isNull ? "exact" : match.string ?? "", value: object["value"] ?? .null)
    }

    private static func test(match: String, value: JSONValue) -> Test {
        switch match {
        case "exact": exact(value)
        case "exists": .exists
        case "gt", "ge", "lt", "le":
            usableNumber(value).map { .number(comparison(match), $0) } ?? .unsupportedValue
        case "substring": value.string.map { .contains($0) } ?? .unsupportedValue
        case "semver_eq", "semver_gt", "semver_ge", "semver_lt", "semver_le":
            value.string.flatMap { SemanticVersion($0) }
                .map { .version(comparison(String(match.dropFirst("semver_".count))), $0) } ?? .unsupportedValue
        case "qualified": value.string.map { .qualified(Identifier($0)) } ?? .unsupportedValue
        default: .unknownMatch(match)
        }
    }

    private static func exact(_ value: JSONValue) -> Test {
        switch value {
        case .string(let text): .equalsString(text)
        case .bool(let bool): .equalsBool(bool)
        default: usableNumber(value).map { .equalsNumber($0) } ?? .unsupportedValue
        }
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

    /// A number from -2^53 to 2^53; the reference takes no other.
    private static func usableNumber(_ value: JSONValue) -> Double? {
        let limit: Int64 = 1 << 53
        switch value {
        case .integer(let integer): return integer.magnitude <= limit.magnitude ? Double(integer) : nil
        case .number(let number): return abs(number) <= Double(limit) ? number : nil
        default: return nil
        }
    }
}

extension AttributeCondition {
    func evaluate(for user: User, _ reasons: inout Reasons) -> Bool? {
        switch test {
        case .exists: return !(value(of: user)?.isNull ?? true)
        case .equalsString(let text): return value(of: user)?.string.map { $0.hasSameBytes(as: text) }
        case .equalsBool(let bool): return value(of: user)?.bool.map { $0 == bool }
        case .equalsNumber(let number): return self.number(of: user).map { $0 == number }
        case .number(let comparison, let number): return self.number(of: user).map { comparison.holds($0, number) }
        case .contains(let text): return value(of: user)?.string.map { $0.containsBytes(of: text) }
        case .version(let comparison, let target):
            return value(of: user)?.string.flatMap { SemanticVersion($0) }
                .flatMap { $0.compared(toTarget: target) }
                .map { comparison.holds($0, 0) }
        case .qualified(let segment): return user.qualifiedSegments.contains(segment)
        case .unknownType(let type):
            reasons.add("unable to evaluate condition of type \"\(type)\"")
            return nil
        case .unknownMatch(let match):
            reasons.add("invalid Condition matcher \"\(match)\"")
            return nil
        case .unsupportedValue: return nil
        }
    }

    private func value(of user: User) -> JSONValue? {
        name.flatMap { user.attributes[$0] }
    }

    private func number(of user: User) -> Double? {
        value(of: user).flatMap(Self.usableNumber)
    }
}
