import Bucketing
public import JSON

extension MetricDefinition {
    /// The members of all kinds. ``table`` has those of one kind.
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

    /// One table for each kind, made once.
    private static let tables = Dictionary(
        uniqueKeysWithValues: Kind.allCases.map { kind in
            let noun = "a metric of the kind '\(kind.rawValue)'"
            return (kind, members.only(names(of: kind), of: noun, blank: MetricDefinition(key: "", kind)))
        })

    /// The members of the metric's kind.
    var table: MemberTable<MetricDefinition> { Self.tables[kind] ?? Self.members }

    /// The names of the members that metrics of a kind have.
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
    /// The adjustment of a metric that does not name one. Rates have none by default, because with an uneven split the
    /// likelihood ratio of the plain rates has more power.
    public var standardAdjustment: MetricDefinition.Adjustment {
        switch self {
        case .count, .total: .days(MetricDefinition.standardDays)
        case .conversion, .mean, .ratio, .retention, .funnel: .none
        }
    }
}

extension MetricDefinition.Adjustment {
    /// `"none"`, `{"days":14}` or `{"attribute":"orders"}`.
    public var json: JSONValue {
        switch self {
        case .none: "none"
        case .days(let days): ["days": .integer(Int64(days))]
        case .attribute(let name): ["attribute": JSONValue(name)]
        }
    }
}
