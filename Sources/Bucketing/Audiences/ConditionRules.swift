package import JSON

/// The rules that the conditions of audiences and of segments share: their structure, their members, and the texts of
/// errors.
package enum ConditionRules {
    /// The members that a condition on an attribute may have.
    package static let members = ["type", "name", "match", "value", "ignore_case"]

    /// Validates the structure of conditions, and each leaf with `leaf`.
    package static func faults(
        in value: JSONValue, at place: JSONPointer, leaf: (JSONObject, JSONPointer) -> [JSONFault]
    ) -> [JSONFault] {
        switch value {
        case .object(let object):
            return leaf(object, place)
        case .array(let list):
            let hasOperator = ["and", "or", "not"].contains(list.first?.string)
            let operandCount = list.count - (hasOperator ? 1 : 0)
            guard operandCount > 0, list.first?.string != "not" || operandCount == 1 else {
                let reason = "'and' and 'or' must precede one condition or more, 'not' exactly one; got \(operandCount)"
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

    /// Returns the fault of a leaf whose `match` is not known.
    package static func unknownMatch(of leaf: JSONObject, _ known: [String], at place: JSONPointer) -> JSONFault {
        JSONFault(
            pointer: place.appending("match"),
            reason: "`match` must be one of \(known.joined(separator: ", ")); got \(found(leaf["match"]))"
                + hint(for: leaf["match"]?.string, known) + example(for: leaf))
    }

    /// The names that other products use for comparisons, with Holdfast's names.
    private static let synonyms = [
        "gte": "ge", "lte": "le", "eq": "exact", "equals": "exact", "contains": "substring", "regex": "matches",
        "startswith": "starts_with", "endswith": "ends_with", "prefix": "starts_with", "suffix": "ends_with",
        "nin": "not_in", "notin": "not_in", "exist": "exists",
    ]

    /// Returns a suggestion if an unknown `match` is a known name of another product; else an empty text.
    private static func hint(for match: String?, _ known: [String]) -> String {
        guard let match, let name = synonyms[match.lowercased()], known.contains(name) else { return "" }
        return "; did you mean '\(name)'?"
    }

    /// Returns the reason why the `value` of `in` or `not_in` is refused: it must be an array of 1 to
    /// ``ConditionDialect/longestList`` values. `nil` if the value is such an array.
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

    /// An attribute and a value that suit some values of `match`.
    private struct Sample {
        let matches: [String]
        let name: String
        let value: JSONValue?

        init(_ matches: [String], _ name: String, _ value: JSONValue?) {
            self.matches = matches
            self.name = name
            self.value = value
        }
    }

    private static let samples = [
        Sample(["exact"], "country", "de"),
        Sample(["in", "not_in"], "country", ["de", "at"]),
        Sample(["exists"], "country", nil),
        Sample(["gt", "ge", "lt", "le"], "age", 18),
        Sample(["starts_with"], "email", "test-"),
        Sample(["substring", "ends_with"], "email", "@example.com"),
        Sample(["matches"], "email", "^[a-z.]+@example[.](com|org)$"),
        Sample(["semver_eq", "semver_gt", "semver_ge", "semver_lt", "semver_le"], "app_version", "2.1.0"),
        Sample(["qualified"], "odp.audiences", "loyal"),
    ]
}
