public import JSON

/// Validates the conditions of an audience: each must be one that some user can meet.
public enum AudienceRules {
    private static let types = ["custom_attribute", "third_party_dimension", "third_party"]

    /// Returns every fault because of which a condition could never be evaluated.
    ///
    /// - Parameter place: the location of the conditions.
    public static func faults(in conditions: JSONValue, at place: JSONPointer) -> [JSONFault] {
        ConditionRules.faults(in: conditions, at: place, leaf: leaf)
    }

    private static func leaf(_ leaf: JSONObject, _ place: JSONPointer) -> [JSONFault] {
        func fault(_ member: String, _ reason: String) -> [JSONFault] {
            [JSONFault(pointer: place.appending(member), reason: reason)]
        }
        let known = leaf["segment"] == nil ? ConditionRules.members : ["segment"]
        if let unknown = ConditionRules.unknownMember(of: leaf, knowing: known, at: place) { return [unknown] }
        if let segment = leaf["segment"] {
            return segment.string == nil ? fault("segment", "`segment` must be a string; got \(segment.kind)") : []
        }
        guard let type = leaf["type"]?.string, types.contains(type) else {
            let list = types.joined(separator: ", ")
            return fault("type", "`type` must be one of \(list); got \(ConditionRules.found(leaf["type"]))")
        }
        guard leaf["name"]?.string?.isEmpty == false else {
            return fault("name", "`name` must be a string that is not empty; got \(ConditionRules.found(leaf["name"]))")
        }
        let match = leaf["match"] ?? .null
        let matches = AttributeTest.matches + ["qualified"]
        guard let matchName = match.isNull ? "exact" : match.string, matches.contains(matchName) else {
            let list = matches.joined(separator: ", ")
            return fault("match", "`match` must be one of \(list); got \(ConditionRules.found(match))")
        }
        let value = leaf["value"] ?? .null
        if matchName == "qualified" {
            return value.string == nil ? fault("value", "`value` must be a string; got \(value.kind)") : []
        }
        if case .unsupportedValue = AttributeTest(match: matchName, value: value) {
            let found = ConditionRules.found(leaf["value"])
            return fault("value", "`value` must be one that \(matchName) can compare; got \(found)")
        }
        return []
    }
}

/// The rules that the conditions of audiences and of segments share.
package enum ConditionRules {
    /// The members that a condition on an attribute may have.
    package static let members = ["type", "name", "match", "value"]

    /// Returns a fault if a leaf has members besides the known ones.
    package static func unknownMember(
        of leaf: JSONObject, knowing known: [String], at place: JSONPointer
    ) -> JSONFault? {
        guard let member = leaf.members.first(where: { !known.contains($0.key) }) else { return nil }
        let list = known.map { "`\($0)`" }.joined(separator: ", ")
        return JSONFault(
            pointer: place.appending(member.key),
            reason: "a condition must have no members but \(list); got `\(member.key)`")
    }

    /// Describes a value for an error message that says what was found.
    package static func found(_ value: JSONValue?) -> String {
        switch value {
        case nil: "nothing"
        case .string(let text)?: "'\(text)'"
        case let value?: value.kind
        }
    }

    /// Validates the structure of conditions, and each leaf with `leaf`.
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
