public import Bucketing
public import Chronology
package import JSON

/// A computation over the goal events of each user for a metric of an experiment. Metrics need one where the totals of
/// a goal are not enough: for caps, time windows, ratios, funnels and breakdowns.
///
/// A ``TrackedSeries`` is a definition that an experiment uses. The totals of its users are stored like those of a
/// goal, under names that no goal can have; see ``SeriesName``.
public struct SeriesDefinition: Hashable, Sendable {
    /// Whether a term adds up the values of events, or counts the events.
    public enum Measure: String, Sendable {
        case value, count
    }

    /// A sum over the events of a goal.
    public struct Term: Hashable, Sendable {
        public var goal: Identifier
        public var measure: Measure
        /// The maximum value of one event.
        public var cap: Double?

        public init(_ goal: Identifier, _ measure: Measure, cap: Double? = nil) {
            self.goal = goal
            self.measure = measure
            self.cap = cap
        }
    }

    /// The value before the first exposure that is stored with a sum. Results use it to reduce the variance of the sum
    /// (CUPED).
    public enum Covariate: Hashable, Sendable {
        /// The same sum over this time before the first exposure.
        case before(TimeSpan)
        /// The value that this attribute had at the first exposure, if it was a number.
        case attribute(Identifier)

        /// The same sum over the time in which goals look back.
        public static let standard = Covariate.before(EventRules.lookBack)
    }

    /// The computation.
    public enum Content: Hashable, Sendable {
        /// The sum of a term since the first exposure, and the sum before it. The cap limits each of the two per user.
        case sum(Term, cap: Double?)
        /// Two sums since the first exposure: the first is kept as ``UserGoal/afterValue``, the second as
        /// ``UserGoal/beforeValue``.
        case ratio(Term, Term)
        /// The steps of a funnel: for each goal the time at which the user first reached it after the preceding goal.
        /// Each step has a total of its own, under a name of its own.
        case funnel([Identifier])
        /// The value of this attribute at the first exposure; see ``BreakdownGroup``.
        case breakdown(Identifier)
        /// The ``AllocationPeriod`` under which the user is tallied, as a group whose index is the number of the
        /// period. The period determines the probability with which the user got the variation.
        case periods
    }

    public var content: Content
    /// The time after the first exposure from which events count.
    public var from: TimeSpan
    /// The time after the first exposure from which events no longer count; `nil` if there is no end.
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

    /// The time before the first exposure in which events count.
    var lookBack: TimeSpan {
        guard case .sum = content, case .before(let span) = covariate else { return .zero }
        return span
    }

    /// Whether the series uses events of a goal.
    func concerns(_ goal: Identifier) -> Bool {
        switch content {
        case .sum(let term, _): term.goal == goal
        case .ratio(let first, let second): first.goal == goal || second.goal == goal
        case .funnel(let goals): goals.contains(goal)
        case .breakdown, .periods: false
        }
    }

    /// - Parameter offset: the time since the first exposure.
    func isInWindow(_ offset: TimeSpan) -> Bool { offset >= from && to.map { offset < $0 } ?? true }
}

// MARK: As JSON

extension SeriesDefinition {
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
