import Bucketing
import JSON

// The forms of the members of a metric; see ``MetricDefinition/members``.

extension Form where Value == Double {
    /// A number greater than 0.
    static func positive(upTo limit: Double) -> Self {
        Form(
            schema: ["type": "number", "exclusiveMinimum": 0, "maximum": .shortest(limit)],
            read: { given, faults in
                guard let number = faults.plainNumber(given) else { return nil }
                if number > 0, number <= limit { return number }
                faults.add(
                    "`\(given.name)` must be greater than 0 and at most \(limit.shortest), or null; got "
                        + number.shortest, at: given.place)
                return nil
            },
            write: { .shortest($0) })
    }

    /// An effect as a share of the baseline.
    static var effect: Self {
        Form(
            schema: number(MetricDefinition.minimumEffects).schema,
            read: { given, faults in
                guard let number = faults.plainNumber(given) else { return nil }
                if MetricDefinition.minimumEffects.contains(number) { return number }
                faults.add(
                    "`\(given.name)` must be a number from 0.0001 to 10, such as 0.05 for 5% of the baseline; got \(number)",
                    at: given.place)
                return nil
            },
            write: { .shortest($0) })
    }

    /// Days after the first exposure.
    static var day: Self { number(MetricDefinition.days) }
}

extension Form where Value == Identifier {
    static var goal: Self {
        Form(
            schema: goalSchema, read: { $1.goal($0.value, $0.name, at: $0.place) }, write: { JSONValue($0) })
    }
}

private let goalSchema: JSONValue = ["type": "string", "minLength": 1, "maxLength": 255]

extension Form where Value == [Identifier] {
    /// The different goals of a funnel, in order.
    static var funnel: Self {
        Form(
            schema: [
                "type": "array", "minItems": .integer(Int64(MetricDefinition.funnelGoals.lowerBound)),
                "maxItems": .integer(Int64(MetricDefinition.funnelGoals.upperBound)), "uniqueItems": true,
                "items": goalSchema,
            ],
            read: { given, faults in
                let list = faults.list(given.object, given.name, MetricDefinition.funnelGoals, at: given.owner)
                guard let list else { return nil }
                var goals: [Identifier] = []
                for (value, place) in list {
                    guard let goal = faults.goal(value, "a goal", at: place) else { continue }
                    if goals.contains(goal) { faults.add("the goals must differ; got '\(goal)' twice", at: place) }
                    goals.append(goal)
                }
                return goals
            },
            write: { JSONValue($0) })
    }
}

extension Form where Value == MetricDefinition.Term {
    /// A term of a ratio: `{"goal":…,"by":"value"|"count"}`.
    static var term: Self {
        Form(
            schema: [
                "type": "object", "required": ["goal", "by"], "additionalProperties": false,
                "properties": [
                    "goal": goalSchema,
                    "by": [
                        "type": "string", "enum": ["value", "count"],
                        "description": "Whether the values of the events are added up, or the events counted.",
                    ],
                ],
            ],
            read: { given, faults in
                let place = given.place
                guard let object = faults.object(given.value, "a term", knowing: ["goal", "by"], at: place) else {
                    return nil
                }
                let goal = faults.goal(object["goal"], "goal", at: place.appending("goal"))
                let measure = faults.choice(Value.Measure.self, object, "by", isRequired: true, at: place)
                guard let goal, let measure else { return nil }
                return Value(goal: goal, measure: measure)
            },
            write: { ["goal": JSONValue($0.goal), "by": .string($0.measure.rawValue)] })
    }
}

extension Form where Value == MetricDefinition.Adjustment {
    /// `"none"`, `{"days":14}` or `{"attribute":"orders"}`.
    static var adjustment: Self {
        Form(
            schema: [
                "oneOf": [
                    ["type": "string", "enum": ["none"]], ["$ref": "#/components/schemas/AdjustmentByDays"],
                    ["$ref": "#/components/schemas/AdjustmentByAttribute"],
                ]
            ],
            read: { $1.adjustment($0) }, write: { $0.json })
    }
}

extension FaultCollector {
    /// Reads a number of any size.
    fileprivate mutating func plainNumber(_ given: GivenMember) -> Double? {
        if let number = given.value.double { return number }
        add("`\(given.name)` must be a number; got \(given.value.kind)", at: given.place)
        return nil
    }

    /// Reads the name of a goal, which is required.
    ///
    /// - Parameter name: the name of the member in errors.
    fileprivate mutating func goal(_ value: JSONValue?, _ name: String, at place: JSONPointer) -> Identifier? {
        guard let value, !value.isNull else {
            add("`\(name)` is required", at: place)
            return nil
        }
        guard let text = value.string else {
            add("`\(name)` must be a string; got \(value.kind)", at: place)
            return nil
        }
        guard NameRule.admitsGoal(text) else {
            add("`\(name)` \(NameRule.ofGoals(text))", at: place)
            return nil
        }
        return Identifier(text)
    }

    /// Reads `"none"`, the days, or the attribute of an adjustment.
    fileprivate mutating func adjustment(_ given: GivenMember) -> MetricDefinition.Adjustment? {
        let value = given.value
        let place = given.place
        let rule =
            "`adjustment` must be \"none\", an object such as {\"days\":14} or one such as {\"attribute\":\"orders\"}"
        if value.string == "none" { return MetricDefinition.Adjustment.none }
        guard let chosen = value.object else {
            add("\(rule); got \(value.string.map { "'\($0)'" } ?? value.kind)", at: place)
            return nil
        }
        guard object(value, "an adjustment", knowing: ["days", "attribute"], at: place) != nil else { return nil }
        switch (chosen["days"], chosen["attribute"]) {
        case (let days?, nil): return adjustment(days: days, at: place.appending("days"))
        case (nil, let attribute?): return adjustment(attribute: attribute, at: place.appending("attribute"))
        default:
            add("\(rule); got \(chosen.count) members", at: place)
            return nil
        }
    }

    private mutating func adjustment(days: JSONValue, at place: JSONPointer) -> MetricDefinition.Adjustment? {
        let range = MetricDefinition.adjustmentDays
        if let number = days.double.flatMap({ Int(exactly: $0) }), range.contains(number) { return .days(number) }
        let found = days.double.map(\.shortest) ?? days.kind
        add("`days` must be a whole number from \(range.lowerBound) to \(range.upperBound); got \(found)", at: place)
        return nil
    }

    private mutating func adjustment(attribute: JSONValue, at place: JSONPointer) -> MetricDefinition.Adjustment? {
        if let name = attribute.string, (1...255).contains(name.utf8.count) { return .attribute(Identifier(name)) }
        let found = attribute.string.map { "\($0.utf8.count) bytes" } ?? attribute.kind
        add("`attribute` must be the name of an attribute, 1 to 255 bytes; got \(found)", at: place)
        return nil
    }
}
