/// What is known of a number of independent values.
public struct Sample: Sendable, Equatable {
    public var count: Double
    public var mean: Double
    /// Of the values, as it is estimated from them.
    public var variance: Double

    public init(count: Double, mean: Double, variance: Double) {
        self.count = count
        self.mean = mean
        self.variance = max(0, variance)
    }

    /// Of `count` trials, the successes.
    public init(successes: Double, of count: Double) {
        let rate = count > 0 ? successes / count : 0
        self.init(count: count, mean: rate, variance: rate * (1 - rate))
    }

    /// The variance of the mean.
    var varianceOfMean: Double { count > 0 ? variance / count : 0 }
}
