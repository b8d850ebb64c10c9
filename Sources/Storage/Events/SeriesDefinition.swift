public import Bucketing
public import Chronology
package import JSON

/// A computation over the goal events of each user, for a metric of an experiment. A metric needs a series if the
/// totals of a goal are not enough: for caps, time windows, ratios, funnels and breakdowns.
///
/// A ``TrackedSeries`` is the use of a definition by an experiment. Its users' totals are stored like the totals of a
/// goal, but under names that no goal can have; see ``SeriesName``.
public struct SeriesDefinition: Hashable, Sendable {
    /// Whether a term adds up the values of events, or counts the events. The raw value is stored.
    public enum Measure: String, Sendable {
        case value, count
    }

    /// A sum over the events of a goal.
    public struct Term: Hashable, Sendable {
        public var goal: Identifier
        public var measure: Measure
        /// The maximum that one event contributes; `nil` if there is none.
        public var cap: Double?

        public init(_ goal: Identifier, _ measure: Measure, cap: Double? = nil) {
            self.goal = goal
            self.measure = measure
            self.cap = cap
        }
    }

    /// The value before the first exposure that is stored with a sum. Results use this value to reduce the variance of
    /// the sum (CUPED).
    public enum Covariate: Hashable, Sendable {
        /// The same sum over this time before the first exposure.
        case before(TimeSpan)
        /// The value of this attribute at the first exposure, if the value was a number.
        case attribute(Identifier)

        /// The same sum over ``EventRules/lookBack``, as for goals.
        public static let standard = Covariate.before(EventRules.lookBack)
    }

    /// The computation.
    public enum Content: Hashable, Sendable {
        /// The sum of a term since the first exposure, and the covariate before it. The cap limits each user's sum.
        case sum(Term, cap: Double?)
        /// Two sums since the first exposure. The numerator is kept as ``UserGoal/afterValue``, and the denominator as
        /// ``UserGoal/beforeValue``.
        case ratio(Term, Term)
        /// The steps of a funnel. For each goal, a total under a name of its own has the time from the exposure to the
        /// first event of the goal after the preceding goal, in milliseconds, as ``UserGoal/afterValue``.
        case funnel([Identifier])
        /// The group of the user by the value of this attribute at the first exposure; see ``BreakdownGroup``.
        case breakdown(Identifier)
        /// The group of the user by ``AllocationPeriod``; the index of the group is the number of the period. Results
        /// need the groups, because the probability with which a user got the variation differs between periods.
        case periods
    }

    public var content: Content
    /// Events count from this time after the first exposure.
    public var from: TimeSpan
    /// Events no longer count from this time after the first exposure; `nil` if there is no end.
    public var to: TimeSpan?
    /// The covariate of a sum; ignored for other series.
    public var covariate = Covariate.standard

    public init(
        _ content: Content, from: TimeSpan = .zero, to: TimeSpan? = nil, covariate: Covariate = .standard
    ) {
        self.content = content
        self.from = from
        self.to = to
        self.covariate = covariate
    }

    /// The time before the first exposure in which events count as the covariate; zero if the covariate is not such a
    /// sum.
    var lookBack: TimeSpan {
        guard case .sum = content, case .before(let span) = covariate else { return .zero }
        return span
    }

    /// Whether the series is computed from events of a goal.
    func concerns(_ goal: Identifier) -> Bool {
        switch content {
        case .sum(let term, _): term.goal == goal
        case .ratio(let first, let second): first.goal == goal || second.goal == goal
        case .funnel(let goals): goals.contains(goal)
        case .breakdown, .periods: false
        }
    }

    /// Whether an event is in the time window of the series.
    ///
    /// - Parameter offset: the time from the first exposure to the event.
    func isInWindow(_ offset: TimeSpan) -> Bool {
        guard offset >= from else { return false }
        return to.map { offset < $0 } ?? true
    }
}

// MARK: As JSON

extension SeriesDefinition {
    /// The definition as stores keep it.
    package var json: JSONValue {
        var object = JSONObject()
        switch content {
        case .sum(let term, let cap):
            object["sum"] = term.json
            object["cap"] = cap.map { .number($0) }
        case .ratio(let first, let second): object["ratio"] = [first.json, second.json]
        case .funnel(let goals): object["funnel"] = .array(goals.map { .string($0.string) })
        case .breakdown(let attribute): object["breakdown"] = .string(attribute.string)
        case .periods: object["periods"] = true
        }
        object["from"] = .integer(from.milliseconds)
        object["to"] = to.map { .integer($0.milliseconds) }
        switch covariate {
        case .standard: break
        case .before(let span): object["look_back"] = .integer(span.milliseconds)
        case .attribute(let attribute): object["attribute"] = .string(attribute.string)
        }
        return .object(object)
    }

    /// Decodes ``json``.
    ///
    /// - Returns: `nil` for a definition of a newer release.
    package init?(_ json: JSONValue) {
        guard let object = json.object else { return nil }
        if let term = object["sum"].flatMap({ Term($0) }) {
            content = .sum(term, cap: object["cap"]?.double)
        } else if let terms = object["ratio"]?.array?.compactMap({ Term($0) }), terms.count == 2 {
            content = .ratio(terms[0], terms[1])
        } else if let goals = object["funnel"]?.array?.compactMap(\.string), !goals.isEmpty {
            content = .funnel(goals.map { Identifier($0) })
        } else if let attribute = object["breakdown"]?.string {
            content = .breakdown(Identifier(attribute))
        } else if object["periods"] == true {
            content = .periods
        } else {
            return nil
        }
        func span(_ name: String) -> TimeSpan? {
            object[name]?.double.flatMap { Int64(exactly: $0) }.map { .milliseconds($0) }
        }
        from = span("from") ?? .zero
        to = span("to")
        if let attribute = object["attribute"]?.string {
            covariate = .attribute(Identifier(attribute))
        } else if let span = span("look_back") {
            covariate = .before(span)
        }
    }
}

extension SeriesDefinition.Term {
    fileprivate var json: JSONValue {
        var object = JSONObject()
        object["goal"] = .string(goal.string)
        object["by"] = .string(measure.rawValue)
        object["cap"] = cap.map { .number($0) }
        return .object(object)
    }

    fileprivate init?(_ json: JSONValue) {
        guard let goal = json.object?["goal"]?.string,
            let measure = json.object?["by"]?.string.flatMap({ SeriesDefinition.Measure(rawValue: $0) })
        else { return nil }
        self.init(Identifier(goal), measure, cap: json.object?["cap"]?.double)
    }
}
