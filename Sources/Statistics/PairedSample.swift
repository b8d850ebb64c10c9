/// Values with one from before for each, by which they can be adjusted.
public struct PairedSample: Sendable, Equatable {
    public var count: Double
    public var mean: Double
    public var meanBefore: Double
    /// Sums of products of deviations from the means.
    public var squares: Double
    public var squaresBefore: Double
    public var products: Double

    public init(
        count: Double, mean: Double, meanBefore: Double, squares: Double, squaresBefore: Double, products: Double
    ) {
        self.count = count
        self.mean = mean
        self.meanBefore = meanBefore
        self.squares = max(0, squares)
        self.squaresBefore = max(0, squaresBefore)
        self.products = products
    }

    /// The values as they are.
    public var sample: Sample {
        Sample(count: count, mean: mean, variance: count > 1 ? squares / (count - 1) : 0)
    }
}

/// A comparison in which the values from before take away what users differed by already: CUPED (Deng, Xu, Kohavi and
/// Walker, Improving the sensitivity of online controlled experiments by utilizing pre-experiment data, 2013).
public struct AdjustedComparison: Sendable, Equatable {
    /// How much a value is expected to rise with the one from before.
    public let theta: Double
    /// Of the adjusted values.
    public let comparison: Comparison
    private let unadjusted: (variation: Double, baseline: Double)

    /// - Returns: `nil` when the values from before, or those since, are all the same, or so near to it that the
    ///   adjustment is beyond what a `Double` can be.
    public init?(_ variation: PairedSample, against baseline: PairedSample) {
        // One theta for both sides, from all their values together.
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

    /// The adjusted difference as a share of the baseline's mean as it is.
    public var lift: Effect? {
        comparison.lift(
            of: comparison.difference.estimate, variationMean: unadjusted.variation, baselineMean: unadjusted.baseline)
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.theta == right.theta && left.comparison == right.comparison && left.unadjusted == right.unadjusted
    }
}
