/// What is wrong with one place of the conditions of an audience or a segment.
public struct ConditionFault: Error, Sendable, Equatable {
    public let pointer: JSONPointer
    public let reason: String
}

/// What all conditions have in common.
enum ConditionRules {
    static let matches = [
        "exact", "exists", "substring", "gt", "ge", "lt", "le",
        "semver_eq", "semver_gt", "semver_ge", "semver_lt", "semver_le",
    ]

    /// What a condition on an attribute may say.
    static let members = ["type", "name", "match", "value"]

    /// What is wrong with a leaf that has other members than these.
    static func unknownMember(of leaf: JSONObject, knowing known: [String], at place: JSONPointer) -> ConditionFault? {
        guard let member = leaf.members.first(where: { !known.contains($0.key) }) else { return nil }
        return ConditionFault(
            pointer: place.appending(member.key),
            reason: "a condition has \(known.joined(separator: ", ")), and no other members")
    }

    /// Looks at each leaf of conditions, and finds what is wrong around them.
    static func faults(
        in value: JSONValue, at place: JSONPointer, leaf: (JSONObject, JSONPointer) -> [ConditionFault]
    ) -> [ConditionFault] {
        switch value {
        case .object(let object):
            return leaf(object, place)
        case .array(let list):
            let hasOperator = ["and", "or", "not"].contains(list.first?.string)
            let operands = list.count - (hasOperator ? 1 : 0)
            guard operands > 0, list.first?.string != "not" || operands == 1 else {
                let reason = "\"and\" and \"or\" have conditions behind them, \"not\" has one"
                return [ConditionFault(pointer: place, reason: reason)]
            }
            return list.enumerated().dropFirst(hasOperator ? 1 : 0).flatMap { index, operand in
                faults(in: operand, at: place.appending(index), leaf: leaf)
            }
        default:
            return [ConditionFault(pointer: place, reason: "conditions are an object or an array, not \(value.kind)")]
        }
    }
}
