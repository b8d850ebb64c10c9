public import JSON

/// The set of tests that conditions may use.
///
/// SDKs fetch the datafile and evaluate its audiences themselves. So audiences may use only the tests that SDKs know,
/// and tests that can be rewritten to those. Segments are evaluated by this server alone, and may use more.
public enum ConditionDialect: Sendable {
    /// The conditions of a datafile.
    case datafile
    /// The conditions of a segment, which may also have the tests of ``TextTest``.
    case segment

    /// The values of `match` that compare with a list. They are rewritten in the datafile, because SDKs do not know
    /// them.
    package static let lists = ["in", "not_in"]
    /// The maximum number of values of `in` and `not_in`.
    package static let longestList = 1_000

    /// Rewrites conditions so that SDKs can evaluate them: adds a missing `type`, writes `in` as an `or` of `exact`
    /// conditions, and `not_in` as the `not` of that. Conditions that SDKs can evaluate already are not changed.
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
