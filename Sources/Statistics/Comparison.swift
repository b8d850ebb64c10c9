import Glibc

/// The estimated difference between a variation and its baseline, absolute or relative to the baseline.
public struct Effect: Sendable, Equatable {
    public var estimate: Double
    /// The variance of the estimate.
    public var variance: Double

    public init(estimate: Double, variance: Double) {
        self.estimate = estimate
        self.variance = variance
    }

    public var standardError: Double { variance.squareRoot() }

    var isFinite: Bool { estimate.isFinite && variance.isFinite }

    /// Returns the interval around the estimate.
    ///
    /// - Parameter factor: the half width in standard errors.
    /// - Returns: `nil` if a bound is not finite.
    public func interval(halfWidth factor: Double) -> ClosedRange<Double>? {
        let half = factor * standardError
        guard (estimate - half).isFinite, (estimate + half).isFinite else { return nil }
        return estimate - half...estimate + half
    }
}

/// Compares a variation with its baseline.
public struct Comparison: Sendable, Equatable {
    public let baseline: Sample
    public let variation: Sample

    public init(_ variation: Sample, against baseline: Sample) {
        self.variation = variation
        self.baseline = baseline
    }

    public var difference: Effect {
        Effect(
            estimate: variation.mean - baseline.mean, variance: variation.varianceOfMean + baseline.varianceOfMean)
    }

    /// The difference relative to the baseline's mean, with its variance by the delta method for independent means.
    ///
    /// - Returns: `nil` if the baseline's mean is 0, or so close to 0 that the result is not finite.
    public var lift: Effect? {
        lift(of: difference.estimate, variationMean: variation.mean, baselineMean: baseline.mean)
    }

    /// - Parameters:
    ///   - difference: the difference of the means, which may be adjusted.
    ///   - variationMean: the unadjusted mean, as is `baselineMean`: a lift is relative to what users really did.
    func lift(of difference: Double, variationMean: Double, baselineMean: Double) -> Effect? {
        guard baselineMean != 0 else { return nil }
        let ratio = variationMean / baselineMean
        let square = baselineMean * baselineMean
        let lift = Effect(
            estimate: difference / baselineMean,
            variance: (variation.varianceOfMean + ratio * ratio * baseline.varianceOfMean) / square)
        return lift.isFinite ? lift : nil
    }

    // MARK: Tests of the null hypothesis

    /// The p-value of the two-sided z test of two proportions, with pooled variance.
    ///
    /// - Returns: `nil` if all trials or none succeeded.
    public var twoProportionPValue: Double? {
        let count = variation.count + baseline.count
        guard variation.count > 0, baseline.count > 0 else { return nil }
        let rate = (variation.count * variation.mean + baseline.count * baseline.mean) / count
        let variance = rate * (1 - rate) * (1 / variation.count + 1 / baseline.count)
        guard variance > 0 else { return nil }
        return 2 * Normal.probability(upTo: -abs(difference.estimate) / variance.squareRoot())
    }

    /// Welch's approximate degrees of freedom (The generalization of "Student's" problem, 1947).
    ///
    /// - Returns: `nil` if a side has fewer than two values, or neither has variance.
    public var degreesOfFreedom: Double? {
        let (left, right) = (variation.varianceOfMean, baseline.varianceOfMean)
        guard variation.count > 1, baseline.count > 1, left + right > 0 else { return nil }
        // Squares of shares of the sum cannot overflow; squares of the variances could.
        let (share, rest) = (left / (left + right), right / (left + right))
        return 1 / (share * share / (variation.count - 1) + rest * rest / (baseline.count - 1))
    }

    /// The p-value of Welch's two-sided t test.
    public var welchPValue: Double? {
        guard let degreesOfFreedom else { return nil }
        return StudentT(degreesOfFreedom: degreesOfFreedom)
            .probability(beyond: difference.estimate / difference.standardError)
    }

    // MARK: Bayesian estimates of means

    /// The posterior probability that the variation's mean is greater than the baseline's, with a flat prior: the
    /// difference is then normally distributed around its estimate.
    public var chanceToWin: Double? {
        let difference = difference
        guard difference.variance > 0 else { return nil }
        return Normal.probability(upTo: difference.estimate / difference.standardError)
    }

    /// The expected loss of choosing the variation: the posterior mean of max(baseline - variation, 0).
    public var expectedLoss: Double? {
        let difference = difference
        guard difference.variance > 0 else { return nil }
        let z = difference.estimate / difference.standardError
        return difference.standardError * (Normal.density(z) - z * Normal.probability(upTo: -z))
    }
}

/// A comparison whose variance is reduced with values from before the experiment: CUPED (Deng, Xu, Kohavi and Walker,
/// Improving the sensitivity of online controlled experiments by utilizing pre-experiment data, 2013).
public struct AdjustedComparison: Sendable, Equatable {
    /// The regression coefficient of a value on the earlier one.
    public let theta: Double
    /// The comparison of the adjusted values.
    public let comparison: Comparison
    private let unadjusted: (variation: Double, baseline: Double)

    /// - Returns: `nil` if the earlier or the current values have no variance, or so little that the adjustment is not
    ///   finite.
    public init?(_ variation: PairedSample, against baseline: PairedSample) {
        // One theta for both sides, estimated from the pooled values.
        let between = variation.count * baseline.count / (variation.count + baseline.count)
        let (apart, apartBefore) = (variation.mean - baseline.mean, variation.meanBefore - baseline.meanBefore)
        let squares = variation.squares + baseline.squares + between * apart * apart
        let squaresBefore =
            variation.squaresBefore + baseline.squaresBefore + between * apartBefore * apartBefore
        guard variation.count > 1, baseline.count > 1, squares > 0, squaresBefore > 0 else { return nil }
        theta = (variation.products + baseline.products + between * apart * apartBefore) / squaresBefore
        comparison = Comparison(
            Self.adjusted(variation, theta), against: Self.adjusted(baseline, theta))
        guard comparison.difference.isFinite else { return nil }
        unadjusted = (variation.mean, baseline.mean)
    }

    private static func adjusted(_ sample: PairedSample, _ theta: Double) -> Sample {
        let squares = sample.squares + theta * (theta * sample.squaresBefore - 2 * sample.products)
        return Sample(
            count: sample.count, mean: sample.mean - theta * sample.meanBefore, variance: squares / (sample.count - 1))
    }

    /// The adjusted difference relative to the unadjusted mean of the baseline.
    public var lift: Effect? {
        comparison.lift(
            of: comparison.difference.estimate, variationMean: unadjusted.variation, baselineMean: unadjusted.baseline)
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.theta == right.theta && left.comparison == right.comparison && left.unadjusted == right.unadjusted
    }
}

/// Confidence intervals that are valid at every sample size at once, so that peeking at results and stopping early are
/// safe: the asymptotic confidence sequences of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Time-uniform central
/// limit theory and asymptotic confidence sequences, 2021 (arXiv 2103.06476).
public struct ConfidenceSequence: Sendable, Equatable {
    /// The probability that the true effect is ever outside the interval.
    public let alpha: Double
    /// Chooses the sample size at which the interval is tightest; any value is valid, at every level.
    private let rhoSquared: Double

    /// - Parameter tuning: the number of users of both sides together at which the interval should be tightest.
    public init(alpha: Double, tuning: Double) {
        self.alpha = alpha
        let logarithm = -2 * log(alpha)
        // The paper's approximation of the optimal rho for one sample size.
        rhoSquared = (logarithm + log(logarithm + 1)) / tuning
    }

    /// Returns the interval for an effect.
    ///
    /// - Parameters:
    ///   - count: the number of values of both sides together.
    ///   - level: another probability than ``alpha``.
    public func interval(_ effect: Effect, count: Double, alpha level: Double? = nil) -> ClosedRange<Double>? {
        guard count > 0 else { return nil }
        return effect.interval(halfWidth: halfWidth(count: count, alpha: level ?? alpha))
    }

    /// Half the width of the interval, in standard errors.
    func halfWidth(count: Double, alpha: Double) -> Double {
        let scale = count * rhoSquared + 1
        return (2 * scale * log(scale.squareRoot() / alpha) / (count * rhoSquared)).squareRoot()
    }

    /// Returns the always-valid p-value: the smallest alpha whose interval excludes 0.
    public func pValue(_ effect: Effect, count: Double) -> Double? {
        guard count > 0, effect.variance > 0 else { return nil }
        let scale = count * rhoSquared + 1
        let distance = effect.estimate / effect.standardError
        let square = distance * distance
        return min(1, scale.squareRoot() * exp(-count * rhoSquared * square / (2 * scale)))
    }
}
