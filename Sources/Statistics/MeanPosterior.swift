/// An estimate with its variance.
public struct Effect: Sendable, Equatable {
    public var estimate: Double
    /// The variance of the estimate.
    public var variance: Double

    public init(estimate: Double, variance: Double) {
        self.estimate = estimate
        self.variance = variance
    }

    public var standardError: Double { variance.squareRoot() }
}

/// The posterior distribution of the difference between the means of a variation and its baseline, with a flat prior:
/// normal around the estimate. For rates see ``RatePosterior``.
public struct MeanPosterior: Sendable, Equatable {
    private let difference: Effect

    public init(_ variation: Sample, against baseline: Sample) {
        difference = Effect(
            estimate: variation.mean - baseline.mean, variance: variation.varianceOfMean + baseline.varianceOfMean)
    }

    /// The probability that the variation's mean is greater than the baseline's; `nil` without variance.
    public var chanceToWin: Double? {
        guard difference.variance > 0 else { return nil }
        return Normal.probability(upTo: difference.estimate / difference.standardError)
    }

    /// The expected loss of choosing the variation: the posterior mean of max(baseline - variation, 0). `nil` without
    /// variance.
    public var expectedLoss: Double? {
        guard difference.variance > 0 else { return nil }
        let z = difference.estimate / difference.standardError
        return difference.standardError * (Normal.density(z) - z * Normal.probability(upTo: -z))
    }
}
