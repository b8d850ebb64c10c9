import Bucketing
public import JSON

extension MetricDefinition {
    /// The members of all kinds.
    public static let members = MemberTable<MetricDefinition>(
        "a metric", blank: MetricDefinition(key: "", .conversion),
        showing: ["experiments", "sdk_key", "revision", "proposals"],
        [
            Member(
                "kind", \.kind, .choice(),
                "`conversion`: the share of users who reached `goal`; `count`: events per user; `total`: the sum of values per "
                    + "user; `mean`: the mean value of the events; `ratio`: `numerator` over `denominator`; `retention`: the "
                    + "share of users who reached `goal` from `from` to `to` days after their first exposure; `funnel`: the share "
                    + "of users who reached `goals` one after the other. Required for a new metric.", .required()),
            Member("goal", \.goal, .goal, "Of all kinds but `ratio` and `funnel`.", .required()),
            Member(
                "cap", \.cap, Form<Double>.positive(upTo: caps.upperBound).optional(),
                "Of `count` and `total`: the maximum of one user's events or total; of `mean`: the maximum value of one event; "
                    + "null for none. It stays once an experiment that measures the metric has started.",
                .init(isClearedByNull: true)),
            Member("numerator", \.numerator, .term, "", .required(termRule)),
            Member("denominator", \.denominator, .term, "", .required(termRule)),
            Member("from", \.from, .day, "Of `retention`: days after the first exposure.", .required(dayRule)),
            Member(
                "to", \.to, .day, "Of `retention`: days after the first exposure; events at this time do not count.",
                .required(dayRule)),
            Member("goals", \.steps, .funnel, "Of `funnel`: in their order.", .required(": the goals in their order")),
            Member(
                "window", \.window, Form<Double>.positive(upTo: days.upperBound).optional(),
                "The days after the first exposure in which events count; null for ever. Not of `retention`.",
                .init(isClearedByNull: true)),
            Member(
                "adjustment", \.adjustment, .adjustment,
                "Of `conversion`, `count`, `total` and `retention`: by what the number of each user is adjusted (CUPED) in the "
                    + "verdict, guardrails and plan: by the same number over some days before the first exposure, or by the "
                    + "number that an attribute had at it. By default `{\"days\":14}` for `count` and `total`, and `none` for "
                    + "rates. It stays once an experiment that measures the metric has started.",
                .init(isClearedByNull: true)),
            Member(
                "direction", \.direction, .choice(), "Which change is an improvement; by default `increase`.",
                .init(isClearedByNull: true, fileDefault: "increase")),
            Member(
                "minimum_effect", \.minimumEffect, Form<Double>.effect.optional(),
                "The smallest effect of interest, as a share of the baseline's mean.", .init(isClearedByNull: true)),
            Member(
                "unit", \.unit, .text(atMost: 32),
                "Of `count`, `total`, `mean` and `ratio`: in what its numbers are, such as `EUR`, `s` or `items`. People see it beside "
                    + "them, a code of ISO 4217 as a currency; nothing is computed by it.",
                .init(isClearedByNull: true)),
            Member("description", \.description, .text(atMost: 4_096), "", .init(isClearedByNull: true)),
        ])

    private static let termRule = ": an object such as {\"goal\":\"purchase\",\"by\":\"value\"}"
    private static let dayRule = ": days after the first exposure"

    private static let tables = Dictionary(
        uniqueKeysWithValues: Kind.allCases.map { kind in
            let noun = "a metric of the kind '\(kind.rawValue)'"
            return (kind, members.only(names(of: kind), of: noun, blank: MetricDefinition(key: "", kind)))
        })

    /// The members of the metric's kind.
    var table: MemberTable<MetricDefinition> { Self.tables[kind] ?? Self.members }

    static func names(of kind: Kind) -> [String] {
        let own =
            switch kind {
            case .conversion: ["goal", "window", "adjustment"]
            case .count, .total: ["goal", "cap", "window", "adjustment", "unit"]
            case .mean: ["goal", "cap", "window", "unit"]
            case .ratio: ["numerator", "denominator", "window", "unit"]
            case .retention: ["goal", "from", "to", "adjustment"]
            case .funnel: ["goals", "window"]
            }
        return ["kind"] + own + ["direction", "minimum_effect", "description"]
    }
}

extension MetricDefinition.Kind {
    /// The adjustment of a metric that does not name one. Rates are not adjusted by default, because with an uneven
    /// split the likelihood ratio of the plain rates has more power.
    public var standardAdjustment: MetricDefinition.Adjustment {
        switch self {
        case .count, .total: .days(MetricDefinition.standardDays)
        case .conversion, .mean, .ratio, .retention, .funnel: .none
        }
    }
}

extension MetricDefinition.Adjustment {
    public var json: JSONValue {
        switch self {
        case .none: "none"
        case .days(let days): ["days": .integer(Int64(days))]
        case .attribute(let name): ["attribute": JSONValue(name)]
        }
    }
}

// MARK: - Forms

extension Form where Value == Double {
    /// A number greater than 0.
    fileprivate static func positive(upTo limit: Double) -> Self {
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

    fileprivate static var effect: Self {
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

    fileprivate static var day: Self { number(MetricDefinition.days) }
}

extension Form where Value == Identifier {
    fileprivate static var goal: Self {
        Form(
            schema: goalSchema, read: { $1.goal($0.value, $0.name, at: $0.place) }, write: { JSONValue($0) })
    }
}

private let goalSchema: JSONValue = ["type": "string", "minLength": 1, "maxLength": 255]

extension Form where Value == [Identifier] {
    fileprivate static var funnel: Self {
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
    fileprivate static var term: Self {
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
    fileprivate static var adjustment: Self {
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
    fileprivate mutating func plainNumber(_ given: GivenMember) -> Double? {
        if let number = given.value.double { return number }
        add("`\(given.name)` must be a number; got \(given.value.kind)", at: given.place)
        return nil
    }

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

    fileprivate mutating func adjustment(_ given: GivenMember) -> MetricDefinition.Adjustment? {
        let (value, place) = (given.value, given.place)
        let rule =
            "`adjustment` must be \"none\", an object such as {\"days\":14} or one such as {\"attribute\":\"orders\"}"
        if value.string == "none" { return MetricDefinition.Adjustment.none }
        guard let chosen = value.object else {
            add("\(rule); got \(value.string.map { "'\($0)'" } ?? value.kind)", at: place)
            return nil
        }
        guard object(value, "an adjustment", knowing: ["days", "attribute"], at: place) != nil else { return nil }
        switch (chosen["days"], chosen["attribute"]) {
        case (let days?, nil):
            let range = MetricDefinition.adjustmentDays
            guard let number = days.double.flatMap({ Int(exactly: $0) }), range.contains(number) else {
                let found = days.double.map(\.shortest) ?? days.kind
                add(
                    "`days` must be a whole number from \(range.lowerBound) to \(range.upperBound); got \(found)",
                    at: place.appending("days"))
                return nil
            }
            return .days(number)
        case (nil, let attribute?):
            guard let name = attribute.string, !name.isEmpty, name.utf8.count <= 255 else {
                let found = attribute.string.map { "\($0.utf8.count) bytes" } ?? attribute.kind
                add(
                    "`attribute` must be the name of an attribute, 1 to 255 bytes; got \(found)",
                    at: place.appending("attribute"))
                return nil
            }
            return .attribute(Identifier(name))
        default:
            add("\(rule); got \(chosen.count) members", at: place)
            return nil
        }
    }
}
