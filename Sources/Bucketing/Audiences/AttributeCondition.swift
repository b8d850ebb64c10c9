import JSON

/// One condition on one attribute of the user.
package struct AttributeCondition: Sendable {
    /// The attribute; `nil` if the condition names none, which no user has.
    package let name: String?
    package let kind: Kind

    package enum Kind: Sendable {
        case test(AttributeTest)
        /// Whether the request names this segment.
        case qualified(Identifier)
        case unknownType(String)
        case unknownMatch(String)
    }

    /// Compiles `{"type", "name", "match", "value"}`.
    init(_ object: JSONObject) {
        name = object["name"]?.string
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
}

extension AttributeCondition {
    func evaluate(for user: User, _ reasons: inout Reasons) -> Bool? {
        switch kind {
        case .test(let test): return answer(test, user)
        case .qualified(let segment): return user.qualifiedSegments.contains(segment)
        case .unknownType(let type):
            reasons.add("unable to evaluate condition of type \"\(type)\"")
            return nil
        case .unknownMatch(let match):
            reasons.add("invalid Condition matcher \"\(match)\"")
            return nil
        }
    }

    /// What the request says of an attribute goes before what is stored, even if it is `null`.
    private func answer(_ test: AttributeTest, _ user: User) -> Bool? {
        if let name, let given = user.attributes[name] { return test.answer(given) }
        if let name, let known = user.known { return known.answer(test, attribute: Identifier(name)) }
        return test.answer(JSONValue?.none)
    }

    /// Whether neither the request nor what is stored has a value.
    func isMissing(for user: User) -> Bool {
        answer(.exists, user) != true
    }
}
