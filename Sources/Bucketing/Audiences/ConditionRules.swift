package import JSON

/// What all conditions have in common.
package enum ConditionRules {
    package static let matches = [
        "exact", "exists", "substring", "gt", "ge", "lt", "le",
        "semver_eq", "semver_gt", "semver_ge", "semver_lt", "semver_le",
    ]

    /// What a condition on an attribute may say.
    package static let members = ["type", "name", "match", "value"]

    /// What is wrong with a leaf that has other members than these.
    package static func unknownMember(of leaf: JSONObject, knowing known: [String], at place: JSONPointer) -> JSONFault? {
        guard let member = leaf.members.first(where: { !known.contains($0.key) }) else { return nil }
        let list = known.map { "`\($0)`" }.joined(separator: ", ")
        return JSONFault(
            pointer: place.appending(member.key),
            reason: "a condition must have no members but \(list); got `\(member.key)`")
    }

    /// What stands where something else must, as an error message names it.
    package static func found(_ value: JSONValue?) -> String {
        switch value {
        case nil: "nothing"
        case .string(let text)?: "'\(text)'"
        case let value?: value.kind
        }
    }

    /// Looks at each leaf of conditions, and finds what is wrong around them.
    package static func faults(
        in value: JSONValue, at place: JSONPointer, leaf: (JSONObject, JSONPointer) -> [JSONFault]
    ) -> [JSONFault] {
        switch value {
        case .object(let object):
            return leaf(object, place)
        case .array(let list):
            let hasOperator = ["and", "or", "not"].contains(list.first?.string)
            let operands = list.count - (hasOperator ? 1 : 0)
            guard operands > 0, list.first?.string != "not" || operands == 1 else {
                let reason = "'and' and 'or' must precede one condition or more, 'not' exactly one; got \(operands)"
                return [JSONFault(pointer: place, reason: reason)]
            }
            return list.enumerated().dropFirst(hasOperator ? 1 : 0).flatMap { index, operand in
                faults(in: operand, at: place.appending(index), leaf: leaf)
            }
        default:
            return [JSONFault(pointer: place, reason: "conditions must be an object or an array; got \(value.kind)")]
        }
    }
}
