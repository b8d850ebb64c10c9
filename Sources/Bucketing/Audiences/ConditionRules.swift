public import JSON

/// Validates the conditions of an audience: each must be one that some user can meet.
public enum AudienceRules {
    private static let types = ["custom_attribute", "third_party_dimension", "third_party"]

    /// Returns every fault because of which a condition could never be evaluated, here or by SDKs.
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
        let matches = AttributeTest.matches + ConditionDialect.lists + ["qualified"]
        let matchName = match.isNull ? "exact" : match.string ?? ""
        let isUnknownMatch = TextTest.matches.contains(matchName)
        if isUnknownMatch || leaf["ignore_case"].map({ $0 != false }) ?? false {
            return fault(
                isUnknownMatch ? "match" : "ignore_case",
                "`\(isUnknownMatch ? matchName : "ignore_case")` must be in a segment, because SDKs decide with the datafile "
                    + #"and do not know it: PUT /v1/segments/NAME with the condition, and then {"segment":"NAME"}"#)
        }
        guard matches.contains(matchName) else { return [ConditionRules.unknownMatch(of: leaf, matches, at: place)] }
        return value(of: leaf, matchName, place.appending("value"))
    }

    private static func value(of leaf: JSONObject, _ match: String, _ place: JSONPointer) -> [JSONFault] {
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

/// The rules that the conditions of audiences and of segments share.
package enum ConditionRules {
    /// The members that a condition on an attribute may have.
    package static let members = ["type", "name", "match", "value", "ignore_case"]

    /// Returns a fault if a leaf has members besides the known ones.
    package static func unknownMember(
        of leaf: JSONObject, knowing known: [String], at place: JSONPointer
    ) -> JSONFault? {
        guard let member = leaf.members.first(where: { !known.contains($0.key) }) else { return nil }
        let list = known.map { "`\($0)`" }.joined(separator: ", ")
        return JSONFault(
            pointer: place.appending(member.key),
            reason: "a condition must have no members but \(list); got `\(member.key)`" + example(for: leaf))
    }

    package static func unknownMatch(of leaf: JSONObject, _ known: [String], at place: JSONPointer) -> JSONFault {
        JSONFault(
            pointer: place.appending("match"),
            reason: "`match` must be one of \(known.joined(separator: ", ")); got \(found(leaf["match"]))"
                + hint(for: leaf["match"]?.string, known) + example(for: leaf))
    }

    /// The names that other products use for comparisons, with the names here.
    private static let synonyms = [
        "gte": "ge", "lte": "le", "eq": "exact", "equals": "exact", "contains": "substring", "regex": "matches",
        "startswith": "starts_with", "endswith": "ends_with", "prefix": "starts_with", "suffix": "ends_with",
        "nin": "not_in", "notin": "not_in", "exist": "exists",
    ]

    private static func hint(for match: String?, _ known: [String]) -> String {
        guard let match, let name = synonyms[match.lowercased()], known.contains(name) else { return "" }
        return "; did you mean '\(name)'?"
    }

    /// Returns the reason why the `value` of `in` or `not_in` is refused: it must be an array of 1 to
    /// ``ConditionDialect/longestList`` values. `nil` if it is one.
    package static func listRefusal(of leaf: JSONObject) -> String? {
        let value = leaf["value"]
        guard let list = value?.array else { return "`value` must be an array of values; got \(found(value))" }
        let counts = 1...ConditionDialect.longestList
        guard !counts.contains(list.count) else { return nil }
        return "`value` must be an array of 1 to \(ConditionDialect.longestList) values; got \(list.count)"
    }

    /// Describes a value for an error message that says what was found.
    package static func found(_ value: JSONValue?) -> String {
        switch value {
        case nil: "nothing"
        case .string(let text)?: "'\(text)'"
        case let value?: value.kind
        }
    }

    /// Returns the end of an error message: an example of a valid condition, with the `name` and `match` of the leaf as
    /// far as they are valid.
    package static func example(for leaf: JSONObject?) -> String {
        let match = leaf?["match"]?.string ?? "exact"
        let sample = samples.first { $0.matches.contains(match) } ?? samples[0]
        var example = JSONObject()
        let name = leaf?["name"]?.string.flatMap { (1...64).contains($0.utf8.count) ? $0 : nil }
        example["name"] = .string(name ?? sample.name)
        example["match"] = .string(sample.matches.contains(match) ? match : sample.matches[0])
        example["value"] = sample.value
        return "; for example \(String(decoding: JSONValue.object(example).encoded(), as: UTF8.self))"
    }

    private static let samples: [(matches: [String], name: String, value: JSONValue?)] = [
        (["exact"], "country", "de"), (["in", "not_in"], "country", ["de", "at"]), (["exists"], "country", nil),
        (["gt", "ge", "lt", "le"], "age", 18), (["starts_with"], "email", "test-"),
        (["substring", "ends_with"], "email", "@example.com"), (["matches"], "email", "^[a-z.]+@example[.](com|org)$"),
        (["semver_eq", "semver_gt", "semver_ge", "semver_lt", "semver_le"], "app_version", "2.1.0"),
        (["qualified"], "odp.audiences", "loyal"),
    ]

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
                return [JSONFault(pointer: place, reason: reason + example(for: nil))]
            }
            return list.enumerated().dropFirst(hasOperator ? 1 : 0).flatMap { index, operand in
                faults(in: operand, at: place.appending(index), leaf: leaf)
            }
        default:
            let reason = "conditions must be an object or an array; got \(value.kind)"
            return [JSONFault(pointer: place, reason: reason + example(for: nil))]
        }
    }
}
