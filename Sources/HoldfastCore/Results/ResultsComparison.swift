import Statistics

/// The contrast of a variation with the baseline, from which verdicts and alarms are derived. The p-values and
/// intervals are always valid: their error rates hold however often somebody looks at them.
struct Evidence: Sendable {
    let contrast: any Contrast
    private let rule: AlwaysValid

    init(_ contrast: any Contrast, tuning: Double = ResultsQuery.tuning) {
        self.contrast = contrast
        rule = AlwaysValid(tuning: tuning)
    }

    /// Returns the always-valid p-value of a null hypothesis.
    func pValue(_ hypothesis: NullHypothesis = .noEffect) -> Double { rule.pValue(contrast, hypothesis) }

    /// Returns the interval of the lift, which excludes 0 if and only if the p-value is less than `alpha`; `nil` if the
    /// interval is not bounded.
    func liftInterval(alpha: Double) -> ClosedRange<Double>? { rule.lifts(of: contrast, alpha: alpha)?.ifBounded }

    /// Returns the interval of the difference, which excludes 0 if and only if the p-value is less than `alpha`; `nil`
    /// if the interval is not bounded.
    func differenceInterval(alpha: Double) -> ClosedRange<Double>? { rule.differences(of: contrast, alpha: alpha) }
}

extension ClosedRange<Double> {
    /// `nil` if a bound is infinite.
    fileprivate var ifBounded: Self? { lowerBound.isFinite && upperBound.isFinite ? self : nil }
}

/// A variation compared with the baseline.
public struct ResultsComparison: Sendable {
    /// The numbers of a contrast. Intervals and p-values without the prefix `sequential` are valid for a single look
    /// that was planned in advance. Those with the prefix are always valid. An unbounded interval is `nil`.
    public struct Numbers: Sendable {
        /// The difference of the variation from the baseline, in units of the mean; positive if the variation has more.
        /// If the ratio of the variations was changed, it is combined from the ranges of days with one ratio.
        public let difference: Double
        public let differenceInterval: ClosedRange<Double>?
        /// The difference as a share of the magnitude of the baseline's mean; `nil` if the mean is 0.
        public let lift: Double?
        public let liftInterval: ClosedRange<Double>?
        /// The p-value for a single look that was planned in advance.
        public let pValue: Double
        public let sequentialDifferenceInterval: ClosedRange<Double>?
        public let sequentialLiftInterval: ClosedRange<Double>?
        /// The always-valid p-value.
        public let sequentialPValue: Double

        init(_ contrast: any Contrast, _ query: ResultsQuery) {
            let alpha = 1 - query.confidence
            let one = OneLook()
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

    /// The use of the contrast that is adjusted by the users' values before the exposure (CUPED: controlled-experiment
    /// using pre-experiment data; Deng, Xu, Kohavi and Walker, 2013).
    enum Adjustment {
        /// There is no adjusted contrast.
        case none
        /// The adjusted contrast is shown beside the plain one. Verdicts are based on the plain one.
        case shown
        /// Verdicts are based on the adjusted contrast.
        case decides
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
    /// The probability that the variation is better than the baseline.
    public var chanceToWin: Double?
    /// The expected loss if the variation is shipped, in units of the mean.
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
        let deciding: any Contrast = decidesAdjusted ? adjusted?.contrast ?? contrast : contrast
        evidence = Evidence(deciding, tuning: query.tuning)
    }

    public var lift: Double? { numbers.lift }
}
