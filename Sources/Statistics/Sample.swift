/// Summary statistics of independent values.
public struct Sample: Sendable, Equatable {
    public var count: Double
    public var mean: Double
    /// The sample variance of the values, not of their mean.
    public var variance: Double

    public init(count: Double, mean: Double, variance: Double) {
        self.count = count
        self.mean = mean
        self.variance = max(0, variance)
    }

    /// Summarises a proportion: `successes` out of `count` trials, each counted as 1 or 0.
    public init(successes: Double, of count: Double) {
        let rate = count > 0 ? successes / count : 0
        self.init(count: count, mean: rate, variance: rate * (1 - rate))
    }

    /// The squared standard error of the mean.
    var varianceOfMean: Double { count > 0 ? variance / count : 0 }
}

/// Summary statistics of values that each have a covariate: a value of the same user from before the experiment.
public struct PairedSample: Sendable, Equatable {
    public var count: Double
    public var mean: Double
    public var meanBefore: Double
    /// The sum of squared deviations of the values from their mean.
    public var squares: Double
    /// The sum of squared deviations of the earlier values from their mean.
    public var squaresBefore: Double
    /// The sum of the products of both deviations.
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

    /// The ratio of the mean of the values to that of the covariates, as a sample with the mean and the variance that the
    /// delta method gives it (Deng, Knoblich and Lu, Applying the delta method in metric analytics, 2018).
    ///
    /// - Returns: `nil` if the covariates' mean is 0, or so close to 0 that the ratio is not finite.
    public var ratio: Sample? {
        guard count > 1, meanBefore != 0 else { return nil }
        let ratio = mean / meanBefore
        let deviations = squares - 2 * ratio * products + ratio * ratio * squaresBefore
        let variance = deviations / (count - 1) / (meanBefore * meanBefore)
        guard ratio.isFinite, variance.isFinite else { return nil }
        return Sample(count: count, mean: ratio, variance: variance)
    }

    /// The variance of the values that the earlier values do not explain.
    public var residualVariance: Double {
        guard count > 1 else { return 0 }
        let explained = squaresBefore > 0 ? products * products / squaresBefore : 0
        return max(0, squares - explained) / (count - 1)
    }

    /// The values without adjustment.
    public var sample: Sample {
        Sample(count: count, mean: mean, variance: count > 1 ? squares / (count - 1) : 0)
    }
}
