/// The difference between the means of a variation and its baseline, absolute or as a share of the baseline's.
public struct Effect: Sendable, Equatable {
    public var estimate: Double
    /// Of the estimate.
    public var variance: Double

    public var standardError: Double { variance.squareRoot() }

    var isFinite: Bool { estimate.isFinite && variance.isFinite }

    /// - Parameter factor: standard errors to each side of the estimate.
    /// - Returns: `nil` when it reaches beyond what a `Double` can be.
    public func interval(halfWidth factor: Double) -> ClosedRange<Double>? {
        let half = factor * standardError
        guard (estimate - half).isFinite, (estimate + half).isFinite else { return nil }
        return estimate - half...estimate + half
    }
}

/// A variation against its baseline.
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

    /// The difference as a share of the baseline's mean; its variance by the delta method, for two independent means.
    ///
    /// - Returns: `nil` when the baseline's mean is 0, or so near to it that a share of it is beyond what a `Double` can
    ///   be.
    public var lift: Effect? {
        lift(of: difference.estimate, variationMean: variation.mean, baselineMean: baseline.mean)
    }

    /// - Parameters:
    ///   - difference: of the means, which may be adjusted.
    ///   - variationMean: not adjusted, as the baseline's: these are what a share is of.
    func lift(of difference: Double, variationMean: Double, baselineMean: Double) -> Effect? {
        guard baselineMean != 0 else { return nil }
        let ratio = variationMean / baselineMean
        let square = baselineMean * baselineMean
        let lift = Effect(
            estimate: difference / baselineMean,
            variance: (variation.varianceOfMean + ratio * ratio * baseline.varianceOfMean) / square)
        return lift.isFinite ? lift : nil
    }

    // MARK: Tests of no difference

    /// The two-sided p-value for two proportions, with the variance that both have if they are the same.
    ///
    /// - Returns: `nil` when all trials or none succeeded.
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
    /// - Returns: `nil` when there are too few values, or all are the same.
    public var degreesOfFreedom: Double? {
        let (left, right) = (variation.varianceOfMean, baseline.varianceOfMean)
        guard variation.count > 1, baseline.count > 1, left + right > 0 else { return nil }
        // By shares, whose squares stay within what a `Double` can be.
        let (share, rest) = (left / (left + right), right / (left + right))
        return 1 / (share * share / (variation.count - 1) + rest * rest / (baseline.count - 1))
    }

    /// The two-sided p-value of Welch's t test.
    public var welchPValue: Double? {
        guard let degreesOfFreedom else { return nil }
        return StudentT(degreesOfFreedom: degreesOfFreedom)
            .probability(beyond: difference.estimate / difference.standardError)
    }

    // MARK: Bayesian figures of means

    /// The probability that the variation's mean is the greater one, when nothing was known of the difference before:
    /// then it is normally distributed around the estimate.
    public var chanceToWin: Double? {
        let difference = difference
        guard difference.variance > 0 else { return nil }
        return Normal.probability(upTo: difference.estimate / difference.standardError)
    }

    /// How much is lost on average by choosing the variation: the mean of what the baseline is greater by, where it
    /// is, and else 0.
    public var expectedLoss: Double? {
        let difference = difference
        guard difference.variance > 0 else { return nil }
        let z = difference.estimate / difference.standardError
        return difference.standardError * (Normal.density(z) - z * Normal.probability(upTo: -z))
    }
}
