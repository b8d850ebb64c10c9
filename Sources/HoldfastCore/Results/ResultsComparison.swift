public import Bucketing
import Statistics
public import Storage

/// The query for the results of an experiment.
public struct ResultsQuery: Sendable {
    public enum Format: String, Sendable {
        case json, csv
    }

    /// The goal to compare; `nil` for a metric.
    public var goal: Identifier?
    /// The key of the metric to compare, if there is no goal; `nil` for the experiment's first primary one.
    public var metricKey: Identifier?
    /// The key or id of a variation; `nil` for `control`, or else the first variation.
    public var baseline: Identifier?
    /// The level of all intervals, such as 0.95.
    public var confidence = 0.95
    /// The number of users at which always-valid intervals are narrowest.
    var tuning = Self.tuning
    static let tuning = 5_000.0
    public var format = Format.json
    /// Of a goal, the metric that the verdict is about.
    public var metric = Verdict.Metric.conversion
    /// The attribute by whose values the results are divided, too.
    public var breakdown: Identifier?
    /// Whether the days of enrollment are listed.
    public var isByDay = false
    /// The effect of interest, as a share of the baseline's mean.
    public var effect: Double?
    /// The UTC days on which the users were enrolled who count, from 1970-01-01; `nil` for all.
    public var enrolledOn: ClosedRange<Int64>?
    /// Which totals of a concluded experiment are asked for.
    public var moment = Moment.ofConclusion

    public enum Moment: Sendable {
        /// Those of its conclusion; of an experiment that is not concluded the present ones.
        case ofConclusion
        /// The present ones.
        case live
        /// Those that were frozen at a time, by a conclusion that was undone since.
        case frozen(Timestamp)
    }

    /// - Throws: 400 with the parameter that is wrong.
    public init(_ query: [String: String]) throws(CoreError) {
        if let goal = query["goal"] {
            guard !goal.isEmpty else { throw CoreError(.invalid, "`goal` must not be empty") }
            self.goal = Identifier(goal)
        }
        baseline = query["baseline"].map { Identifier($0) }
        if let text = query["confidence"] {
            guard let number = Double(text), (0.5...0.9999).contains(number) else {
                throw CoreError(.invalid, "`confidence` must be a number from 0.5 to 0.9999; got '\(text)'")
            }
            confidence = number
        }
        if let text = query["sequential_tuning"] {
            guard let number = Double(text), (1...1e9).contains(number) else {
                throw CoreError(.invalid, "`sequential_tuning` must be a number of users from 1 to 1e9; got '\(text)'")
            }
            tuning = number
        }
        if let text = query["format"] {
            guard let known = Format(rawValue: text) else {
                throw CoreError(.invalid, "`format` must be 'json' or 'csv'; got '\(text)'")
            }
            format = known
        }
        if let text = query["metric"] {
            if goal == nil {
                metricKey = Identifier(text)
            } else if let known = Verdict.Metric(rawValue: text) {
                metric = known
            } else {
                throw CoreError(
                    .invalid,
                    "`metric` must be 'conversion' or 'value' of the goal; got '\(text)': leave `goal` out to compare a "
                        + "metric by its key")
            }
        }
        if let text = query["by"] {
            guard text == "day" else { throw CoreError(.invalid, "`by` must be 'day'; got '\(text)'") }
            isByDay = true
        }
        breakdown = query["breakdown"].map { Identifier($0) }
        if breakdown != nil, isByDay {
            throw CoreError(.invalid, "`by` and `breakdown` must not be given together")
        }
        if let text = query["mde"] {
            guard let number = Double(text), MetricDefinition.minimumEffects.contains(number) else {
                throw CoreError(
                    .invalid, "`mde` must be a number from 0.0001 to 10, such as 0.05 for a lift of 5%; got '\(text)'")
            }
            effect = number
        }
        moment = try Self.moment(query)
        let first = try Self.day(query, "enrolled_from")
        let last = try Self.day(query, "enrolled_to")
        guard first != nil || last != nil else { return }
        let (from, to) = (first ?? .min, last ?? .max)
        guard from <= to else {
            throw CoreError(
                .invalid, "`enrolled_from` must not be after `enrolled_to`; got '\(query["enrolled_from"] ?? "")'")
        }
        enrolledOn = from...to
    }

    private static func moment(_ query: [String: String]) throws(CoreError) -> Moment {
        let isLive = query["live"]
        guard isLive.map({ ["true", "false"].contains($0) }) ?? true else {
            throw CoreError(.invalid, "`live` must be 'true' or 'false'; got '\(isLive ?? "")'")
        }
        guard let text = query["frozen_at"] else { return isLive == "true" ? .live : .ofConclusion }
        guard isLive != "true" else { throw CoreError(.invalid, "`live` and `frozen_at` must not be given together") }
        guard let time = Timestamp(rfc3339: text) else {
            throw CoreError(
                .invalid, "`frozen_at` must be a time such as 2026-01-31T12:00:00.000Z; got '\(text)'")
        }
        return .frozen(time)
    }

    private static func day(_ query: [String: String], _ name: String) throws(CoreError) -> Int64? {
        guard let text = query[name] else { return nil }
        guard text.utf8.count == 10, let midnight = Timestamp(rfc3339: "\(text)T00:00:00Z") else {
            throw CoreError(.invalid, "`\(name)` must be a date such as 2026-01-31; got '\(text)'")
        }
        return midnight.day
    }

    /// The parameters that results without goal and metric have: the level is that of the plan.
    public static let planParameters = [
        "baseline", "sequential_tuning", "enrolled_from", "enrolled_to", "live", "frozen_at",
    ]

    public static let parameters = [
        "goal", "baseline", "confidence", "sequential_tuning", "metric", "format", "by", "breakdown", "mde",
        "enrolled_from", "enrolled_to", "live", "frozen_at",
    ]
}

/// A variation compared with the baseline.
public struct ResultsComparison: Sendable {
    /// The comparison adjusted for the users' data from before their exposure (CUPED).
    public struct Adjusted: Sendable {
        public var lift: Double?
        public var liftInterval: ClosedRange<Double>?
        public var pValue: Double?
        public var sequentialLiftInterval: ClosedRange<Double>?
        /// The share of the difference's variance that the adjustment removes.
        public var varianceReduction: Double
    }

    /// The lift with its always-valid p-value.
    struct Sequence: Sendable {
        let effect: Effect
        let pValue: Double
        private let count: Double
        private let sequence: ConfidenceSequence

        /// - Returns: `nil` if all users did the same.
        init?(_ lift: Effect, count: Double, _ sequence: ConfidenceSequence) {
            guard let p = sequence.pValue(lift, count: count) else { return nil }
            (effect, pValue, self.count, self.sequence) = (lift, p, count, sequence)
        }

        /// Returns the always-valid p-value of another effect than 0.
        func pValue(against effect: Double) -> Double? {
            var difference = self.effect
            difference.estimate -= effect
            return sequence.pValue(difference, count: count)
        }

        /// Returns the interval that excludes 0 if and only if the p-value is less than `alpha`.
        func interval(alpha: Double) -> ClosedRange<Double>? {
            sequence.interval(effect, count: count, alpha: alpha)
        }
    }

    public var difference: Double
    public var differenceInterval: ClosedRange<Double>
    /// The difference as a share of the baseline's mean. All lifts are `nil` if that mean is 0 or nearly 0.
    public var lift: Double?
    public var liftInterval: ClosedRange<Double>?
    /// `nil` if all users did the same.
    public var pValue: Double?
    public var chanceToWin: Double?
    /// In units of the mean.
    public var expectedLoss: Double?
    public var sequentialLiftInterval: ClosedRange<Double>?
    public var sequentialPValue: Double? { sequence?.pValue }
    let sequence: Sequence?
    /// `nil` if there is no data from before the exposures.
    public var adjusted: Adjusted?

    /// - Parameter factor: half the width of an interval, in standard errors.
    /// - Returns: `nil` if the difference exceeds the range of `Double`.
    init?(
        _ comparison: Comparison, pValue: Double?, factor: Double, chanceToWin: Double?, expectedLoss: Double?,
        adjusted: AdjustedComparison?, _ query: ResultsQuery
    ) {
        let effect = comparison.difference
        guard let interval = effect.interval(halfWidth: factor) else { return nil }
        difference = effect.estimate
        differenceInterval = interval
        lift = comparison.lift?.estimate
        liftInterval = comparison.lift?.interval(halfWidth: factor)
        self.pValue = pValue
        self.chanceToWin = chanceToWin
        self.expectedLoss = expectedLoss
        let sequence = ConfidenceSequence(alpha: 1 - query.confidence, tuning: query.tuning)
        let count = comparison.baseline.count + comparison.variation.count
        sequentialLiftInterval = comparison.lift.flatMap { sequence.interval($0, count: count) }
        self.sequence = comparison.lift.flatMap { Sequence($0, count: count, sequence) }
        self.adjusted = adjusted.flatMap { adjusted in
            guard let degrees = adjusted.comparison.degreesOfFreedom else { return nil }
            let factor = StudentT(degreesOfFreedom: degrees).distance(exceededWith: 1 - query.confidence)
            return Adjusted(
                lift: adjusted.lift?.estimate, liftInterval: adjusted.lift?.interval(halfWidth: factor),
                pValue: adjusted.comparison.welchPValue,
                sequentialLiftInterval: adjusted.lift.flatMap { sequence.interval($0, count: count) },
                varianceReduction: 1 - adjusted.comparison.difference.variance / effect.variance)
        }
    }
}
