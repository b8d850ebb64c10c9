/// Checks the conditions of an audience: each is to be one that somebody can meet.
public enum AudienceRules {
    private static let types = ["custom_attribute", "third_party_dimension", "third_party"]

    /// - Parameter place: where the conditions stand.
    /// - Returns: everything that would keep a condition from ever being answered.
    public static func faults(in conditions: JSONValue, at place: JSONPointer) -> [ConditionFault] {
        ConditionRules.faults(in: conditions, at: place, leaf: leaf)
    }

    private static func leaf(_ leaf: JSONObject, _ place: JSONPointer) -> [ConditionFault] {
        func fault(_ member: String, _ reason: String) -> [ConditionFault] {
            [ConditionFault(pointer: place.appending(member), reason: reason)]
        }
        let known = leaf["segment"] == nil ? ConditionRules.members : ["segment"]
        if let unknown = ConditionRules.unknownMember(of: leaf, knowing: known, at: place) { return [unknown] }
        if let segment = leaf["segment"] {
            return segment.string == nil ? fault("segment", "the name of a segment is a string, not \(segment.kind)") : []
        }
        guard let type = leaf["type"]?.string, types.contains(type) else {
            return fault("type", "the type of a condition is one of \(types.joined(separator: ", "))")
        }
        guard leaf["name"]?.string?.isEmpty == false else {
            return fault("name", "the name of an attribute is a string that is not empty")
        }
        let match = leaf["match"] ?? .null
        let matches = ConditionRules.matches + ["qualified"]
        guard let matchName = match.isNull ? "exact" : match.string, matches.contains(matchName) else {
            return fault("match", "the match is one of \(matches.joined(separator: ", "))")
        }
        let value = leaf["value"] ?? .null
        if matchName == "qualified" {
            return value.string == nil ? fault("value", "the value is a string, not \(value.kind)") : []
        }
        if case .unsupportedValue = AttributeTest(match: matchName, value: value) {
            return fault("value", "\(matchName) cannot use this value")
        }
        return []
    }
}
