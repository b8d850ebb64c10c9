import JSON

// Describes the conditions of an audience with their results for a user, for the explanation of a decision
// (``DecisionStep``).

extension Condition {
    /// The maximum number of conditions that one explanation lists. Bounds the size of the response.
    private static let maximumCount = 1_000

    /// Describes the conditions as a JSON object, each with its own `result` for a user: `true`, `false`, or `null` for
    /// unknown.
    ///
    ///     {"operator": "and", "result": false, "conditions": [
    ///         {"attribute": "age", "match": "ge", "value": 18, "actual": 17, "result": false}, …]}
    ///
    /// - Parameter showsValues: whether to add the user's `actual` values of attributes.
    func explained(for user: User, showingValues showsValues: Bool) -> JSONValue {
        var remaining = Self.maximumCount
        return explained(user, showsValues, &remaining)
    }

    /// - Parameter remaining: how many conditions may still be listed.
    private func explained(_ user: User, _ showsValues: Bool, _ remaining: inout Int) -> JSONValue {
        var json = JSONObject()
        var operands: [Condition] = []
        switch self {
        case .cached(_, let condition): return condition.explained(user, showsValues, &remaining)
        case .and(let conditions), .or(let conditions):
            // A list of one condition has the result of that condition.
            if conditions.count == 1, let only = conditions.first {
                return only.explained(user, showsValues, &remaining)
            }
            if case .and = self { json["operator"] = "and" } else { json["operator"] = "or" }
            operands = conditions
        case .not(let condition):
            json["operator"] = "not"
            operands = condition.map { [$0] } ?? []
        case .audience(let id, let condition):
            json["audience_id"] = .string(id.string)
            operands = [condition]
        case .missingAudience(let id): json["audience_id"] = .string(id)
        case .segment(let name):
            json["segment"] = .string(name.string)
            operands = user.storedAttributes?.segment(name).map { [$0.condition] } ?? []
        case .outsideSegment(let name):
            json["segment"] = .string(name.string)
            json["match"] = "outside"
            operands = user.storedAttributes?.segment(name).map { [$0.condition] } ?? []
        case .attribute(let condition): condition.explain(user, showsValues, in: &json)
        case .invalid: json["operator"] = "invalid"
        }
        remaining -= 1
        var reasons = Reasons(.none)
        json["result"] = evaluate(for: user, &reasons).map { .bool($0) } ?? .null
        guard !operands.isEmpty else { return .object(json) }
        var list: [JSONValue] = []
        for operand in operands where remaining > 0 {
            list.append(operand.explained(user, showsValues, &remaining))
        }
        json["conditions"] = .array(list)
        if list.count < operands.count { json["left_out"] = .integer(Int64(operands.count - list.count)) }
        return .object(json)
    }
}

extension AttributeCondition {
    /// Adds the members that describe the condition.
    fileprivate func explain(_ user: User, _ showsValues: Bool, in json: inout JSONObject) {
        json["attribute"] = name.map { .string($0) } ?? .null
        switch kind {
        case .test(let test):
            let (match, value) = test.json
            json["match"] = match
            if !value.isNull { json["value"] = value }
            if case .text(let test) = test, test.ignoresCase { json["ignore_case"] = true }
            if showsValues, let name {
                json["actual"] = user.attributes[name] ?? user.storedAttributes?.value(of: Identifier(name)) ?? .null
            }
        case .qualified(let segment):
            json["match"] = "qualified"
            json["value"] = .string(segment.string)
        case .unknownMatch(let match): json["match"] = .string(match)
        case .unknownType(let type): json["type"] = .string(type)
        }
    }
}

extension AttributeTest {
    /// The `match` and `value` of a condition, as a datafile has them; `null` for a value that does not suit its match.
    fileprivate var json: (match: JSONValue, value: JSONValue) {
        switch self {
        case .exists: ("exists", .null)
        case .equalsString(let text): ("exact", .string(text))
        case .equalsBool(let bool): ("exact", .bool(bool))
        case .equalsNumber(let number): ("exact", .shortest(number))
        case .number(let comparison, let number): (.string(comparison.rawValue), .shortest(number))
        case .moment(let comparison, let text): (.string(comparison.rawValue), .string(text))
        case .contains(let text): ("substring", .string(text))
        case .version(let comparison, let version): (.string("semver_\(comparison.rawValue)"), .string(version.text))
        case .text(let test): (.string(test.match), .string(test.value))
        case .unsupportedValue: (.null, .null)
        }
    }
}
