public import Bucketing
public import Chronology
public import Definitions
import Statistics
import Storage

/// The query for the results of an experiment: the goal or metric to compare, the users who count, and the format.
public struct ResultsQuery: Sendable {
    /// The format of the response.
    public enum Format: String, Sendable {
        case json, csv
    }

    /// The statistic of a goal: the share of users who reached it, or the mean of its values over all users.
    public enum Metric: String, Sendable {
        case conversion, value
    }

    /// The goal to compare; `nil` to compare a metric.
    public var goal: Identifier?
    /// The key of the metric to compare, if there is no goal; `nil` for the experiment's first primary metric.
    public var metricKey: Identifier?
    /// The key or id of the variation with which others are compared; `nil` for `control`, or else the first variation.
    public var baseline: Identifier?
    /// The level of all intervals, such as 0.95.
    public var confidence = 0.95
    /// The number of users at which always-valid intervals are narrowest.
    var tuning = Self.tuning
    /// The default of the property `tuning`.
    static let tuning = AlwaysValid.tuning
    /// The format of the response.
    public var format = Format.json
    /// The statistic of a goal on which the verdict is based.
    public var metric = Metric.conversion
    /// The attribute by whose values the results are also divided; `nil` for none.
    public var breakdown: Identifier?
    /// Whether the days of enrollment are listed.
    public var isByDay = false
    /// The effect of interest, as a share of the baseline's mean; `nil` for none.
    public var effect: Double?
    /// The UTC days of enrollment whose users count, counted from 1970-01-01; `nil` for all days.
    public var enrolledOn: ClosedRange<Int64>?
    /// A further restriction of users and events.
    public var filter = ResultsFilter()
    /// The moment of the requested totals.
    public var moment = Moment.ofConclusion

    /// The moment at which totals were counted. The conclusion of an experiment freezes its totals.
    public enum Moment: Sendable {
        /// The totals of the conclusion; the current ones if the experiment is not concluded.
        case ofConclusion
        /// The current totals.
        case live
        /// The totals that were frozen at a time, by a conclusion that has been undone since.
        case frozen(Instant)
    }

    private init() {}

    /// The query for the current totals of all users.
    public static let live: Self = {
        var query = Self()
        query.moment = .live
        return query
    }()

    /// Parses the query parameters of a request.
    ///
    /// - Throws: 400 with the parameter that is wrong.
    public init(_ query: [String: String]) throws(CoreError) {
        if let goal = query["goal"] {
            guard !goal.isEmpty else { throw CoreError(.invalid, "`goal` must not be empty") }
            self.goal = Identifier(goal)
        }
        baseline = query["baseline"].map { Identifier($0) }
        try readStatistics(query)
        try readSubject(query)
        try readParts(query)
        effect = try Self.number(
            query, "mde", in: MetricDefinition.minimumEffects,
            "must be a number from 0.0001 to 10, such as 0.05 for a lift of 5%")
        filter = try ResultsFilter(query)
        if breakdown != nil, let other = ["attribute", "segment", "days"].first(where: { query[$0] != nil }) {
            throw CoreError(.invalid, "`breakdown` and `\(other)` must not be given together")
        }
        moment = try Self.moment(query)
        enrolledOn = try Self.days(query)
    }

    /// Reads the level and the tuning of intervals, and the format of the response.
    private mutating func readStatistics(_ query: [String: String]) throws(CoreError) {
        confidence =
            try Self.number(query, "confidence", in: 0.5...0.9999, "must be a number from 0.5 to 0.9999") ?? confidence
        tuning =
            try Self.number(query, "sequential_tuning", in: 1...1e9, "must be a number of users from 1 to 1e9")
            ?? tuning
        if let text = query["format"] {
            guard let known = Format(rawValue: text) else {
                throw CoreError(.invalid, "`format` must be 'json' or 'csv'; got '\(text)'")
            }
            format = known
        }
    }

    /// Reads `metric`: with a goal the statistic of the goal, and otherwise the key of a metric.
    private mutating func readSubject(_ query: [String: String]) throws(CoreError) {
        guard let text = query["metric"] else { return }
        if goal == nil {
            metricKey = Identifier(text)
        } else if let known = Metric(rawValue: text) {
            metric = known
        } else {
            throw CoreError(
                .invalid,
                "`metric` must be 'conversion' or 'value' of the goal; got '\(text)': leave `goal` out to compare a "
                    + "metric by its key")
        }
    }

    /// Reads the division of the results: by day or by the values of an attribute.
    private mutating func readParts(_ query: [String: String]) throws(CoreError) {
        if let text = query["by"] {
            guard text == "day" else { throw CoreError(.invalid, "`by` must be 'day'; got '\(text)'") }
            isByDay = true
        }
        breakdown = query["breakdown"].map { Identifier($0) }
        if breakdown != nil, isByDay {
            throw CoreError(.invalid, "`by` and `breakdown` must not be given together")
        }
    }

    /// Returns the number of a parameter; `nil` if the parameter is absent.
    ///
    /// - Parameter rule: the rule for the error, such as "must be a number from 1 to 10".
    private static func number(
        _ query: [String: String], _ name: String, in range: ClosedRange<Double>, _ rule: String
    ) throws(CoreError) -> Double? {
        guard let text = query[name] else { return nil }
        guard let number = Double(text), range.contains(number) else {
            throw CoreError(.invalid, "`\(name)` \(rule); got '\(text)'")
        }
        return number
    }

    /// Returns the days from `enrolled_from` to `enrolled_to`; `nil` without both parameters.
    private static func days(_ query: [String: String]) throws(CoreError) -> ClosedRange<Int64>? {
        let first = try day(query, "enrolled_from")
        let last = try day(query, "enrolled_to")
        guard first != nil || last != nil else { return nil }
        let from = first ?? .min
        let to = last ?? .max
        guard from <= to else {
            throw CoreError(
                .invalid, "`enrolled_from` must not be after `enrolled_to`; got '\(query["enrolled_from"] ?? "")'")
        }
        return from...to
    }

    /// Returns the moment of the totals that `live` and `frozen_at` request.
    private static func moment(_ query: [String: String]) throws(CoreError) -> Moment {
        if let live = query["live"], live != "true", live != "false" {
            throw CoreError(.invalid, "`live` must be 'true' or 'false'; got '\(live)'")
        }
        let isLive = query["live"] == "true"
        guard let text = query["frozen_at"] else { return isLive ? .live : .ofConclusion }
        guard !isLive else { throw CoreError(.invalid, "`live` and `frozen_at` must not be given together") }
        guard let time = Instant(rfc3339: text) else {
            throw CoreError(
                .invalid, "`frozen_at` must be a time such as 2026-01-31T12:00:00.000Z; got '\(text)'")
        }
        return .frozen(time)
    }

    /// Returns the UTC day of a parameter such as `2026-01-31`.
    private static func day(_ query: [String: String], _ name: String) throws(CoreError) -> Int64? {
        guard let text = query[name] else { return nil }
        guard text.utf8.count == 10, let midnight = Instant(rfc3339: "\(text)T00:00:00Z") else {
            throw CoreError(.invalid, "`\(name)` must be a date such as 2026-01-31; got '\(text)'")
        }
        return midnight.day
    }

    /// The parameters of a query without a goal and a metric. `confidence` is not among them, because the plan defines
    /// the level.
    public static let planParameters =
        [
            "baseline", "sequential_tuning", "enrolled_from", "enrolled_to", "live", "frozen_at", "format",
        ] + ResultsFilter.parameters

    /// All parameters of a query.
    public static let parameters =
        [
            "goal", "baseline", "confidence", "sequential_tuning", "metric", "format", "by", "breakdown", "mde",
            "enrolled_from", "enrolled_to", "live", "frozen_at",
        ] + ResultsFilter.parameters
}
