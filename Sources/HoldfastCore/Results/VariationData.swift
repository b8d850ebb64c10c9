import Bucketing
import Definitions
import Statistics
import Storage

/// The samples of the counted users of a variation, in total and in parts. The type computes the estimates of results,
/// and the contrasts with the baseline.
///
/// A part consists of the users of a range of days in which the ratio of the variations did not change
/// (``SampleRatioCheck/daysByRatio``). Contrasts compare each part with the same part of the baseline and combine the
/// differences, because a rate that changes over time is not an effect of the variation.
struct VariationData {
    /// The samples of all users, or of the users of one range of days.
    struct Part {
        let users: Double
        /// The number of users with a value since the exposure.
        let converted: Double
        /// The number of users with a value before the exposure; for a ratio, the number of users with a denominator.
        let convertedBefore: Double
        /// The values since the exposure, paired with the values before it; for a ratio, numerators paired with
        /// denominators.
        let value: PairedSample

        /// Converts the sums of a tally to samples. In a tally, y is the value of a user since the exposure, and x the
        /// value before the exposure.
        init(_ tally: VariationTally) {
            let goal = tally.goal
            let count = Double(tally.counted)
            users = count
            converted = Double(goal.converted)
            convertedBefore = Double(goal.convertedBefore)
            guard count > 0 else {
                value = PairedSample(
                    count: 0, mean: 0, meanBefore: 0, squares: 0, squaresBefore: 0, products: 0)
                return
            }
            value = PairedSample(
                count: count, mean: goal.y.value / count, meanBefore: goal.x.value / count,
                squares: (goal.yy - goal.y * goal.y / count).value,
                squaresBefore: (goal.xx - goal.x * goal.x / count).value,
                products: (goal.xy - goal.x * goal.y / count).value)
        }
    }

    let total: Part
    /// The parts; only ``total`` if the ratio never changed.
    private let parts: [Part]
    /// The weighted samples of an experiment with a bandit; see ``AdaptiveResults``.
    let adaptive: AdaptiveResults.Samples?

    var users: Double { total.users }
    var conversion: Sample { Sample(successes: total.converted, of: total.users) }
    var value: PairedSample { total.value }

    init(_ tally: VariationTally, _ parts: [VariationTally]? = nil, _ adaptive: AdaptiveResults.Samples? = nil) {
        total = Part(tally)
        self.parts = parts?.map { Part($0) } ?? [total]
        self.adaptive = adaptive
    }

    /// Returns the sample of all users for a statistic, weighted if the experiment has a bandit; `nil` for a ratio that
    /// has no denominator.
    func sample(_ statistic: MetricDefinition.Statistic) -> Sample? {
        switch statistic {
        case .rate: adaptive?.conversion ?? conversion
        case .mean: adaptive?.value ?? value.sample
        case .ratio: value.ratio
        }
    }

    // MARK: Contrasts

    /// The minimum number of users with a denominator on each side of a ratio. With fewer users, the delta method, by
    /// which the variance of a ratio is approximated, is not valid.
    private static let fewestDenominators = 30.0

    /// Returns the contrast of the values since the exposure, without an adjustment.
    ///
    /// - Returns: `nil` if a side has too few users.
    func contrast(_ statistic: MetricDefinition.Statistic, against baseline: VariationData) -> (any Contrast)? {
        if let own = adaptive, let other = baseline.adaptive, statistic != .ratio {
            return statistic == .rate
                ? MeanContrast(weighted: own.conversion, against: other.conversion)
                : MeanContrast(weighted: own.value, against: other.value)
        }
        let pairs = pairs(with: baseline)
        switch statistic {
        case .rate:
            return RateContrast(
                pairs.map { own, other in
                    RateContrast.Period(own.converted, of: own.users, baseline: other.converted, of: other.users)
                })
        case .mean: return MeanContrast(pairs.map { ($0.value.sample, $1.value.sample) })
        case .ratio:
            guard min(total.convertedBefore, baseline.total.convertedBefore) >= Self.fewestDenominators else {
                return nil
            }
            var ratios: [(variation: Sample, baseline: Sample)] = []
            for (own, other) in pairs {
                guard let ownRatio = own.value.ratio, let otherRatio = other.value.ratio else { continue }
                ratios.append((ownRatio, otherRatio))
            }
            return MeanContrast(ratios)
        }
    }

    /// Returns the contrast of means, adjusted by the users' values before the exposure (CUPED), and the share of the
    /// variance that the adjustment removes. A rate is adjusted as the mean of ones and zeros.
    ///
    /// - Returns: `nil` if no user has a value before the exposure, or if the experiment has a bandit.
    func adjustedContrast(against baseline: VariationData) -> ResultsComparison.Adjusted? {
        guard adaptive == nil, total.value.squaresBefore + baseline.total.value.squaresBefore > 0 else { return nil }
        let pairs = pairs(with: baseline)
        guard let adjusted = MeanContrast(adjusting: pairs.map { ($0.value, $1.value) }),
            let raw = MeanContrast(pairs.map { ($0.value.sample, $1.value.sample) })
        else { return nil }
        return (adjusted, raw.variance > 0 ? 1 - adjusted.variance / raw.variance : 0)
    }

    /// Returns each part with the same part of the baseline.
    private func pairs(with baseline: VariationData) -> [(own: Part, other: Part)] {
        // A variation without users in any range has no parts. The totals are compared then.
        guard parts.count == baseline.parts.count else { return [(total, baseline.total)] }
        return zip(parts, baseline.parts).map { (own: $0, other: $1) }
    }

    // MARK: Estimates

    /// Returns the rate, mean or ratio, compared with the baseline.
    ///
    /// - Parameters:
    ///   - isDecrease: whether less is better, for the chance to win and the expected loss.
    ///   - adjustment: the use of the contrast that is adjusted by CUPED, if there is one.
    func estimate(
        _ statistic: MetricDefinition.Statistic, against baseline: VariationData?, isDecrease: Bool = false,
        adjustment: ResultsComparison.Adjustment = .none, _ query: ResultsQuery
    ) -> ExperimentResults.Estimate {
        // A ratio without a denominator has no value, so its mean and its variance are NaN.
        let sample = sample(statistic) ?? Sample(count: 0, mean: .nan, variance: .nan)
        var estimate = ExperimentResults.Estimate(
            mean: sample.mean, standardDeviation: sample.variance.squareRoot())
        guard let baseline, let contrast = contrast(statistic, against: baseline) else { return estimate }
        let (better, worse) = isDecrease ? (baseline, self) : (self, baseline)
        let (chance, loss) = better.chanceToWinAndExpectedLoss(statistic, against: worse)
        estimate.comparison = ResultsComparison(
            contrast, adjusted: adjustment == .none ? nil : adjustedContrast(against: baseline),
            decidesAdjusted: adjustment == .decides, chanceToWin: chance, expectedLoss: loss, query)
        return estimate
    }

    /// Returns the probability that this variation is better than the other one if more is better, and the expected
    /// loss of choosing it; `nil` if a side has too few users.
    private func chanceToWinAndExpectedLoss(
        _ statistic: MetricDefinition.Statistic, against other: VariationData
    ) -> (Double?, Double?) {
        if statistic == .rate, adaptive == nil {
            let posterior = RatePosterior(
                successes: total.converted, of: users, againstSuccesses: other.total.converted, of: other.users)
            let (chanceToWin, expectedLoss) = posterior.chanceToWinAndExpectedLoss
            return (chanceToWin, expectedLoss)
        }
        guard let own = sample(statistic), let other = other.sample(statistic) else { return (nil, nil) }
        let posterior = MeanPosterior(own, against: other)
        return (posterior.chanceToWin, posterior.expectedLoss)
    }
}
