public import JSON

/// Checks the conditions of an audience: each is to be one that somebody can meet.
public enum AudienceRules {
    private static let types = ["custom_attribute", "third_party_dimension", "third_party"]

    /// - Parameter place: where the conditions stand.
    /// - Returns: everything that would keep a condition from ever being answered.
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
        let matches = ConditionRules.matches + ["qualified"]
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
