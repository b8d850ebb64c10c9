public import JSON

/// Which tests conditions may have.
///
/// SDKs decide with the datafile, too. So audiences of experiments and flags have only what SDKs know, and what can be
/// written with that. Segments are evaluated by this server alone, and may have more.
public enum ConditionDialect: Sendable {
    /// The conditions of a datafile.
    case datafile
    /// The conditions of a segment: also those of ``TextTest``.
    case segment

    /// The values of `match` that are written as others in the datafile.
    package static let lists = ["in", "not_in"]
    /// The maximum number of values of `in` and `not_in`.
    package static let longestList = 1_000

    /// Returns conditions as SDKs know them: each with a `type`, `in` as an `or` of `exact`, and `not_in` as its `not`.
    /// What SDKs know already stays byte by byte as it is.
    public static func datafileForm(of conditions: JSONValue) -> JSONValue {
        if let list = conditions.array { return .array(list.map(datafileForm)) }
        guard let given = conditions.object, given["segment"] == nil else { return conditions }
        var leaf = given
        if given["type"] == nil {
            leaf = JSONObject()
            leaf["type"] = "custom_attribute"
            for member in given { leaf[member.key] = member.value }
        }
        guard let match = given["match"]?.string, lists.contains(match), let values = given["value"]?.array else {
            return .object(leaf)
        }
        let tests = values.map { value -> JSONValue in
            var test = leaf
            test["match"] = "exact"
            test["value"] = value
            return .object(test)
        }
        let any: JSONValue = tests.count == 1 ? tests[0] : .array(["or"] + tests)
        return match == "in" ? any : ["not", any]
    }
}
