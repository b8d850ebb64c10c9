public import Bucketing
public import Chronology
public import Definitions
import Statistics
import Storage

/// The query for the results of an experiment.
public struct ResultsQuery: Sendable {
    public enum Format: String, Sendable {
        case json, csv
    }

    /// The statistic of a goal: the share of users who reached it, or the mean of its values over all users.
    public enum Metric: String, Sendable {
        case conversion, value
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
    static let tuning = AlwaysValid.tuning
    public var format = Format.json
    /// The statistic of a goal on which the verdict is based.
    public var metric = Metric.conversion
    /// The attribute by whose values the results are also divided.
    public var breakdown: Identifier?
    /// Whether the days of enrollment are listed.
    public var isByDay = false
    /// The effect of interest, as a share of the baseline's mean.
    public var effect: Double?
    /// The UTC days of enrollment whose users count, from 1970-01-01; `nil` for all.
    public var enrolledOn: ClosedRange<Int64>?
    /// A further restriction of users and events.
    public var filter = ResultsFilter()
    /// The totals of a concluded experiment that are requested.
    public var moment = Moment.ofConclusion

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
            } else if let known = Metric(rawValue: text) {
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
        filter = try ResultsFilter(query)
        if breakdown != nil, let other = ["attribute", "segment", "days"].first(where: { query[$0] != nil }) {
            throw CoreError(.invalid, "`breakdown` and `\(other)` must not be given together")
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
        guard let time = Instant(rfc3339: text) else {
            throw CoreError(
                .invalid, "`frozen_at` must be a time such as 2026-01-31T12:00:00.000Z; got '\(text)'")
        }
        return .frozen(time)
    }

    private static func day(_ query: [String: String], _ name: String) throws(CoreError) -> Int64? {
        guard let text = query[name] else { return nil }
        guard text.utf8.count == 10, let midnight = Instant(rfc3339: "\(text)T00:00:00Z") else {
            throw CoreError(.invalid, "`\(name)` must be a date such as 2026-01-31; got '\(text)'")
        }
        return midnight.day
    }

    /// The parameters of results without a goal and a metric. They have no `confidence`, because the plan defines the
    /// level.
    public static let planParameters =
        [
            "baseline", "sequential_tuning", "enrolled_from", "enrolled_to", "live", "frozen_at", "format",
        ] + ResultsFilter.parameters

    public static let parameters =
        [
            "goal", "baseline", "confidence", "sequential_tuning", "metric", "format", "by", "breakdown", "mde",
            "enrolled_from", "enrolled_to", "live", "frozen_at",
        ] + ResultsFilter.parameters
}

/// The contrast of a variation with the baseline, with always-valid p-values and intervals, on which a verdict is
/// based.
struct Evidence: Sendable {
    let contrast: any Contrast
    private let rule: AlwaysValid

    init(_ contrast: any Contrast, tuning: Double = ResultsQuery.tuning) {
        self.contrast = contrast
        rule = AlwaysValid(tuning: tuning)
    }

    func pValue(_ hypothesis: NullHypothesis = .noEffect) -> Double { rule.pValue(contrast, hypothesis) }

    /// Returns the interval that excludes 0 if and only if the p-value is less than `alpha`; `nil` if it is not bounded.
    func liftInterval(alpha: Double) -> ClosedRange<Double>? { rule.lifts(of: contrast, alpha: alpha)?.ifBounded }

    /// Returns the interval of the difference, as ``liftInterval(alpha:)``.
    func differenceInterval(alpha: Double) -> ClosedRange<Double>? { rule.differences(of: contrast, alpha: alpha) }
}

extension ClosedRange<Double> {
    /// `nil` if a bound is infinite.
    fileprivate var ifBounded: Self? { lowerBound.isFinite && upperBound.isFinite ? self : nil }
}

/// A variation compared with the baseline.
public struct ResultsComparison: Sendable {
    /// The numbers of a contrast. Intervals without a prefix are valid for a single look that was planned in advance;
    /// sequential ones are always valid. Unbounded intervals are `nil`.
    public struct Numbers: Sendable {
        public let difference: Double
        public let differenceInterval: ClosedRange<Double>?
        /// The difference as a share of the magnitude of the baseline's mean; `nil` if that is 0.
        public let lift: Double?
        public let liftInterval: ClosedRange<Double>?
        /// The p-value for a single look that was planned in advance.
        public let pValue: Double
        public let sequentialDifferenceInterval: ClosedRange<Double>?
        public let sequentialLiftInterval: ClosedRange<Double>?
        /// The always-valid p-value.
        public let sequentialPValue: Double

        init(_ contrast: any Contrast, _ query: ResultsQuery) {
            let (alpha, one) = (1 - query.confidence, OneLook())
            let evidence = Evidence(contrast, tuning: query.tuning)
            difference = contrast.difference
            differenceInterval = one.differences(of: contrast, alpha: alpha)
            lift = contrast.lift
            liftInterval = one.lifts(of: contrast, alpha: alpha)?.ifBounded
            pValue = one.pValue(contrast, .noEffect)
            sequentialDifferenceInterval = evidence.differenceInterval(alpha: alpha)
            sequentialLiftInterval = evidence.liftInterval(alpha: alpha)
            sequentialPValue = evidence.pValue()
        }
    }

    /// The use of the contrast that is adjusted by the users' values before the exposure (CUPED).
    enum Adjustment {
        case none, shown, decides
    }

    /// An adjusted contrast, and the share of the difference's variance that the adjustment removes.
    typealias Adjusted = (contrast: MeanContrast, varianceReduction: Double)

    /// The numbers without an adjustment.
    public let numbers: Numbers
    /// The numbers adjusted by the users' values before the exposure (CUPED); `nil` if there are no such values.
    public let adjusted: Numbers?
    /// The share of the difference's variance that the adjustment removes.
    public let varianceReduction: Double?
    /// Whether verdicts are based on the adjusted numbers.
    public let isDecidedAdjusted: Bool
    public var chanceToWin: Double?
    /// The expected loss, in units of the mean.
    public var expectedLoss: Double?
    /// The evidence of the numbers on which verdicts are based.
    let evidence: Evidence

    /// - Parameters:
    ///   - adjusted: the contrast that is adjusted by CUPED.
    ///   - decidesAdjusted: whether verdicts are based on `adjusted`, if it exists.
    init(
        _ contrast: any Contrast, adjusted: Adjusted?, decidesAdjusted: Bool, chanceToWin: Double?,
        expectedLoss: Double?, _ query: ResultsQuery
    ) {
        numbers = Numbers(contrast, query)
        self.adjusted = adjusted.map { Numbers($0.contrast, query) }
        varianceReduction = adjusted?.varianceReduction
        self.chanceToWin = chanceToWin
        self.expectedLoss = expectedLoss
        isDecidedAdjusted = decidesAdjusted && adjusted != nil
        evidence = Evidence(decidesAdjusted ? adjusted?.contrast ?? contrast : contrast, tuning: query.tuning)
    }

    public var lift: Double? { numbers.lift }
}
