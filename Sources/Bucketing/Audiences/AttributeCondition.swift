import JSON

/// A condition on one attribute of the user: a leaf of a ``Condition``. Finds the value of the attribute and applies an
/// ``AttributeTest`` to the value.
///
///     {"type": "custom_attribute", "name": "age", "match": "ge", "value": 18}
///
/// A class, because each evaluation takes it out of a ``Condition``, and copying a struct of this size would cost more
/// than the comparison.
package final class AttributeCondition: Sendable {
    /// The name of the attribute. `nil` if the condition does not name one; no user has such an attribute.
    package let name: String?
    package let kind: Kind

    package enum Kind: Sendable {
        case test(AttributeTest)
        /// Whether the request lists this segment of Optimizely's Data Platform (ODP) among the user's.
        case qualified(Identifier)
        /// The `type` is not supported, so the result is always unknown.
        case unknownType(String)
        /// The `match` is not supported, so the result is always unknown.
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

    /// - Returns: `nil` if the result is unknown; see ``Condition``.
    func evaluate(for user: User, _ reasons: inout Reasons) -> Bool? {
        switch kind {
        case .test(let test):
            // There is no request here, but a later request may have the attribute. So even `exists` is unknown.
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

    /// Applies a test to the value of the attribute. An attribute in the request takes precedence over the stored one,
    /// even if it is `null`.
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

extension JSONObject {
    /// The test of a condition, if it is one that only segments may have. `nil` for any other test, and for a pattern
    /// that is not valid.
    fileprivate var textTest: TextTest? {
        guard let value = self["value"]?.string else { return nil }
        return try? TextTest(
            match: self["match"]?.string ?? "exact", value: value, ignoresCase: self["ignore_case"] == true)
    }
}
