public import JSON

/// Builds the complement of an audience: conditions that a user meets exactly if the user does not meet the audience.
///
/// In SDKs, experiments of a flag decide before its deliveries. If a delivery comes first in the flag's rules, the
/// audience of each experiment after it must therefore exclude the users of the delivery.
///
/// `not` alone does not suffice: if an attribute is missing, the result of the audience is unknown, and so is its
/// negation. A limitation remains: a user whose attribute has a type that the audience cannot compare is in neither.
public enum AudienceExclusion {
    /// Conditions that no user meets.
    public static let nobody: JSONValue = {
        let exists: JSONValue = ["type": "custom_attribute", "name": "holdfast", "match": "exists"]
        return ["and", exists, ["not", exists]]
    }()

    /// Returns the conditions of all users who do not meet an audience.
    public static func outside(_ audience: JSONValue) -> JSONValue {
        outside(audience, negated: true)
    }

    /// - Parameter negated: whether to return the conditions of the users for whom the audience is false or unknown. If
    ///   false, returns those of the users for whom it is true or unknown.
    private static func outside(_ conditions: JSONValue, negated: Bool) -> JSONValue {
        guard let list = conditions.array else { return leaf(conditions, negated: negated) }
        let name = list.first?.string
        if name == "not" { return list.count > 1 ? outside(list[1], negated: !negated) : conditions }
        let operands = (name == "and" || name == "or" ? Array(list.dropFirst()) : list)
        let isConjunction = (name == "and") != negated
        return .array([isConjunction ? "and" : "or"] + operands.map { outside($0, negated: negated) })
    }

    private static func leaf(_ leaf: JSONValue, negated: Bool) -> JSONValue {
        guard let object = leaf.object else { return leaf }
        if let segment = object["segment"] {
            let outside: JSONValue = ["segment": segment, "match": "outside"]
            // SDKs do not know segments, so both conditions are unknown to them.
            return negated ? outside : leaf
        }
        let condition: JSONValue = negated ? ["not", leaf] : leaf
        let match = object["match"]?.string
        if match == "exists" || match == "qualified" { return condition }
        let exists: JSONValue = [
            "type": object["type"] ?? "custom_attribute", "name": object["name"] ?? "", "match": "exists",
        ]
        return ["or", condition, ["not", exists]]
    }
}
