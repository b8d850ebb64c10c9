public import JSON

/// Validates the conditions of an audience when it is defined over the API. A condition that no user can ever meet,
/// such as one with an unknown `match`, is refused; a datafile may have such conditions, which are then unknown for all
/// users.
///
/// Segments may have more tests, and have rules of their own. Both use ``ConditionRules``.
public enum AudienceRules {
    /// The values that `type` may have.
    private static let types = ["custom_attribute", "third_party_dimension", "third_party"]

    /// Returns the faults of conditions that could never be evaluated, by this server or by SDKs.
    ///
    /// - Parameter place: the location of the conditions.
    public static func faults(in conditions: JSONValue, at place: JSONPointer) -> [JSONFault] {
        ConditionRules.faults(in: conditions, at: place, leaf: leaf)
    }

    /// Returns the faults in a condition that is not a list.
    private static func leaf(_ leaf: JSONObject, _ place: JSONPointer) -> [JSONFault] {
        func fault(_ member: String, _ reason: String) -> [JSONFault] {
            [JSONFault(pointer: place.appending(member), reason: reason)]
        }
        let knownMembers = leaf["segment"] == nil ? ConditionRules.members : ["segment"]
        if let unknown = ConditionRules.unknownMember(of: leaf, knowing: knownMembers, at: place) { return [unknown] }
        if let segment = leaf["segment"] {
            return segment.string == nil ? fault("segment", "`segment` must be a string; got \(segment.kind)") : []
        }
        if let type = leaf["type"], !types.contains(type.string ?? "") {
            let list = types.joined(separator: ", ")
            return fault("type", "`type` must be one of \(list), or absent; got \(ConditionRules.found(type))")
        }
        guard leaf["name"]?.string?.isEmpty == false else {
            let found = ConditionRules.found(leaf["name"])
            return fault(
                "name", "`name` must be a string that is not empty; got \(found)" + ConditionRules.example(for: leaf))
        }
        let match = leaf["match"] ?? .null
        let matchName = match.isNull ? "exact" : match.string ?? ""
        let isMatchOfSegments = TextTest.matches.contains(matchName)
        let ignoresCase = leaf["ignore_case"].map { $0 != false } ?? false
        if isMatchOfSegments || ignoresCase {
            let unsupported = isMatchOfSegments ? matchName : "ignore_case"
            return fault(
                isMatchOfSegments ? "match" : "ignore_case",
                "`\(unsupported)` must be in a segment, because SDKs decide with the datafile "
                    + #"and do not know it: PUT /v1/segments/NAME with the condition, and then {"segment":"NAME"}"#)
        }
        let knownMatches = AttributeTest.matches + ConditionDialect.lists + ["qualified"]
        guard knownMatches.contains(matchName) else {
            return [ConditionRules.unknownMatch(of: leaf, knownMatches, at: place)]
        }
        return valueFaults(of: leaf, matchName, place.appending("value"))
    }

    /// Returns the faults of a condition's `value`: it must be one that the test can compare.
    private static func valueFaults(of leaf: JSONObject, _ match: String, _ place: JSONPointer) -> [JSONFault] {
        let value = leaf["value"] ?? .null
        func fault(_ reason: String, at place: JSONPointer) -> JSONFault {
            JSONFault(pointer: place, reason: reason + ConditionRules.example(for: leaf))
        }
        if ConditionDialect.lists.contains(match) {
            if let refusal = ConditionRules.listRefusal(of: leaf) { return [fault(refusal, at: place)] }
            return (value.array ?? []).enumerated().compactMap { index, element in
                guard case .unsupportedValue = AttributeTest(match: "exact", value: element) else { return nil }
                let found = ConditionRules.found(element)
                return fault(
                    "a value must be a string, a number or a boolean; got \(found)", at: place.appending(index))
            }
        }
        if match == "qualified" {
            return value.string == nil ? [fault("`value` must be a string; got \(value.kind)", at: place)] : []
        }
        if case .unsupportedValue = AttributeTest(match: match, value: value) {
            let found = ConditionRules.found(leaf["value"])
            return [fault("`value` must be one that \(match) can compare; got \(found)", at: place)]
        }
        return []
    }
}
