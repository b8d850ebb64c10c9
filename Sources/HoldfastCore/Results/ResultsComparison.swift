import Bucketing
import Statistics
import Storage

/// What is told of a variation against the baseline.
public struct ResultsComparison: Sendable {
    /// The same with what is known of the users from before the exposure taken into account (CUPED).
    public struct Adjusted: Sendable {
        public var lift: Double?
        public var liftInterval: ClosedRange<Double>?
        public var pValue: Double?
        public var sequentialLiftInterval: ClosedRange<Double>?
        /// The share of the variance of the difference that is gone.
        public var varianceReduction: Double
    }

    public var difference: Double
    public var differenceInterval: ClosedRange<Double>
    /// As a share of the baseline's mean; `nil` when that is 0 or nearly so, as for all lifts.
    public var lift: Double?
    public var liftInterval: ClosedRange<Double>?
    /// `nil` when all users did the same.
    public var pValue: Double?
    public var chanceToWin: Double?
    /// In the unit of the mean.
    public var expectedLoss: Double?
    public var sequentialLiftInterval: ClosedRange<Double>?
    public var sequentialPValue: Double?
    /// `nil` when there is nothing from before.
    public var adjusted: Adjusted?

    /// - Parameter factor: standard errors to each side of an estimate.
    /// - Returns: `nil` when the difference is beyond what a `Double` can be.
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
        if let lift = comparison.lift {
            sequentialLiftInterval = sequence.interval(lift, count: count)
            sequentialPValue = sequence.pValue(lift, count: count)
        }
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
