import Glibc

/// The means of a variation and its baseline, or two ratios of sums, compared by the squared contrast in units of its
/// variance: z² = (m1 - k·m0)² / V(k), where k depends on the hypothesis (1 for no effect, 1.1 for a lift of 10%).
///
/// Each initializer reduces the values of each period to a ``Part``. A common initializer weights the parts by their
/// effective users and adds them up.
///
/// The variance is the greater of two: the unpooled one, s1²/n1 + s0²/n0, and the pooled one, which assumes that both
/// sides have the same distribution and equals s1²/n0 + s0²/n1. With the unpooled one alone, heavy tails or a single
/// outlier on the smaller side could make a difference look certain.
public struct MeanContrast: Contrast {
    /// The variance of m1 - k·m0 as a polynomial in k: constant + linear · k + square · k².
    private struct Variance: Sendable {
        var constant = 0.0
        var linear = 0.0
        var square = 0.0

        /// The variance for a multiple k.
        func at(_ multiple: Double) -> Double { constant + multiple * (linear + multiple * square) }

        static func += (left: inout Self, right: Self) {
            left.constant += right.constant
            left.linear += right.linear
            left.square += right.square
        }

        static func * (variance: Self, factor: Double) -> Self {
            Self(
                constant: variance.constant * factor, linear: variance.linear * factor, square: variance.square * factor
            )
        }
    }

    /// The mean of the variation, m1.
    private let mean: Double
    /// The mean of the baseline, m0.
    private let baseMean: Double
    /// The two variances; see ``MeanContrast``.
    private let unpooled: Variance
    private let pooled: Variance
    /// The pooled variance also contains the square of the contrast, divided by this number: the distance of the two
    /// means is part of the spread of a common distribution. Infinite if nothing is pooled.
    private let users: Double
    public let effectiveUsers: Double

    /// Compares means, or ratios with the variance of the delta method (``PairedSample/ratio``).
    ///
    /// - Parameter periods: the users of each period of allocation. Periods with fewer than two users on a side are
    ///   left out.
    /// - Returns: `nil` if no period is left.
    public init?(_ periods: [(variation: Sample, baseline: Sample)]) {
        self.init(
            periods.map { variation, baseline in
                Part(
                    count: variation.count, baseCount: baseline.count, mean: variation.mean, baseMean: baseline.mean,
                    own: Variance(constant: variation.variance), other: Variance(square: baseline.variance))
            })
    }

    /// Compares means that are adjusted by earlier values of the same users: CUPED (Deng, Xu, Kohavi and Walker,
    /// Improving the sensitivity of online controlled experiments by utilizing pre-experiment data, 2013). The
    /// coefficient minimizes the variance if there is no effect, and is the same for all hypotheses.
    public init?(adjusting periods: [(variation: PairedSample, baseline: PairedSample)]) {
        let usable = periods.filter { $0.variation.count > 1 && $0.baseline.count > 1 }
        var covariance = 0.0
        var varianceBefore = 0.0
        for (variation, baseline) in usable {
            // The covariance and the variance of the means of a side. Periods are weighted as for the contrast.
            let weight = Self.effectiveUsers(variation.count, baseline.count)
            for side in [variation, baseline] {
                covariance += weight * weight * side.products / (side.count - 1) / side.count
                varianceBefore += weight * weight * side.squaresBefore / (side.count - 1) / side.count
            }
        }
        let slope = varianceBefore > 0 ? covariance / varianceBefore : 0
        self.init(
            usable.map { variation, baseline in
                let (ownDegrees, otherDegrees) = (variation.count - 1, baseline.count - 1)
                let residualSquares =
                    variation.squares - slope * (2 * variation.products - slope * variation.squaresBefore)
                return Part(
                    count: variation.count, baseCount: baseline.count,
                    mean: variation.mean - slope * (variation.meanBefore - baseline.meanBefore),
                    baseMean: baseline.mean,
                    own: Variance(constant: residualSquares / ownDegrees),
                    other: Variance(
                        constant: slope * slope * baseline.squaresBefore / otherDegrees,
                        linear: -2 * slope * baseline.products / otherDegrees,
                        square: baseline.squares / otherDegrees))
            })
    }

    /// Compares estimates that are not plain means, such as those of a bandit (``AdaptiveMeans``).
    public init?(weighted variation: Sample, against baseline: Sample) {
        guard variation.count > 1, baseline.count > 1 else { return nil }
        let variance = Variance(
            constant: variation.variance / variation.count, square: baseline.variance / baseline.count)
        guard variance.at(1) > 0, variance.at(1).isFinite else { return nil }
        mean = variation.mean
        baseMean = baseline.mean
        unpooled = variance
        pooled = variance
        users = .infinity
        effectiveUsers = Self.effectiveUsers(variation.count, baseline.count)
    }

    /// The values of one period of allocation.
    private struct Part {
        var count: Double
        var baseCount: Double
        var mean: Double
        var baseMean: Double
        /// The variance that one user of the variation contributes.
        var own: Variance
        /// The variance that one user of the baseline contributes.
        var other: Variance
    }

    /// Adds up periods, each weighted by its effective users.
    private init?(_ parts: [Part]) {
        let parts = parts.filter { $0.count > 1 && $0.baseCount > 1 }
        guard !parts.isEmpty else { return nil }
        let weights = parts.map { Self.effectiveUsers($0.count, $0.baseCount) }
        let sum = weights.reduce(0, +)
        var mean = 0.0
        var baseMean = 0.0
        var unpooled = Variance()
        var pooled = Variance()
        var inverseOfUsers = 0.0
        for (part, weight) in zip(parts, weights) {
            let share = weight / sum
            mean += share * part.mean
            baseMean += share * part.baseMean
            unpooled += part.own * (share * share / part.count)
            unpooled += part.other * (share * share / part.baseCount)
            pooled += part.own * (share * share / part.baseCount)
            pooled += part.other * (share * share / part.count)
            inverseOfUsers += share * share / (part.count + part.baseCount)
        }
        guard mean.isFinite, baseMean.isFinite, unpooled.at(1).isFinite, pooled.at(1).isFinite else { return nil }
        self.mean = mean
        self.baseMean = baseMean
        self.unpooled = unpooled
        self.pooled = pooled
        users = 1 / inverseOfUsers
        effectiveUsers = sum
    }

    private static func effectiveUsers(_ count: Double, _ baseCount: Double) -> Double {
        4 * count * baseCount / (count + baseCount)
    }

    public var difference: Double { mean - baseMean }
    public var lift: Double? {
        let lift = difference / abs(baseMean)
        return lift.isFinite ? lift : nil
    }

    /// The variance of the difference if there is no effect: the greater of the unpooled and the pooled variance.
    public var variance: Double { max(unpooled.at(1), pooled.at(1)) }

    public func squaredZ(_ hypothesis: NullHypothesis) -> Double {
        let (contrast, multiple) = contrast(hypothesis)
        guard contrast != 0 else { return 0 }
        // Divides before it squares, because the square of the contrast could overflow.
        func squaredZ(_ variance: Double) -> Double {
            let z = contrast / max(0, variance).squareRoot()
            return z * z
        }
        // contrast² / (V + contrast² / users), see `users`.
        let withPooledVariance = 1 / (1 / squaredZ(pooled.at(multiple)) + 1 / users)
        return min(squaredZ(unpooled.at(multiple)), withPooledVariance)
    }

    public func isAbove(_ hypothesis: NullHypothesis) -> Bool { contrast(hypothesis).value > 0 }

    /// Returns the contrast that is 0 if a hypothesis holds exactly, and its multiple k of the baseline's mean.
    private func contrast(_ hypothesis: NullHypothesis) -> (value: Double, multiple: Double) {
        switch hypothesis {
        case .lift(let lift):
            let multiple = 1 + (baseMean < 0 ? -lift : lift)
            return (mean - multiple * baseMean, multiple)
        case .difference(let difference): return (mean - baseMean - difference, 1)
        }
    }

    // MARK: Intervals

    /// Returns the bound of contrast² / V that is equivalent to a bound of the squared z with the pooled variance, V +
    /// contrast² / users; `nil` if no contrast reaches that squared z.
    private func pooledBound(_ squaredZ: Double) -> Double? {
        squaredZ < users ? squaredZ / (1 - squaredZ / users) : nil
    }

    public func differences(upTo squaredZ: Double) -> ClosedRange<Double>? {
        guard let pooledBound = pooledBound(squaredZ) else { return nil }
        let half = max(0, squaredZ * unpooled.at(1), pooledBound * pooled.at(1)).squareRoot()
        guard (difference - half).isFinite, (difference + half).isFinite else { return nil }
        return difference - half...difference + half
    }

    /// Fieller (Some problems in interval estimation, 1954) gives the set of lifts for one variance. There are two
    /// variances, so the result is the smallest interval that contains both sets.
    public func lifts(upTo squaredZ: Double) -> ClosedRange<Double>? {
        guard let pooledBound = pooledBound(squaredZ), let first = multiples(squaredZ, unpooled),
            let second = multiples(pooledBound, pooled)
        else { return nil }
        // Adds the distances to the estimated lift, because subtracting 1 from a multiple near 1 would lose precision.
        let (low, high) = (min(first.lowerBound, second.lowerBound), max(first.upperBound, second.upperBound))
        let lift = difference / baseMean
        return baseMean > 0 ? lift + low...lift + high : -lift - high...(-lift - low)
    }

    /// Returns the multiples k of the baseline's mean with (m1 - k·m0)² ≤ q·V(k), as distances from the estimated
    /// multiple m1/m0: the solutions of a quadratic inequality. `nil` if they are not bounded, because the baseline's
    /// mean may be 0.
    private func multiples(_ q: Double, _ variance: Variance) -> ClosedRange<Double>? {
        let estimate = mean / baseMean
        let square = baseMean * baseMean - q * variance.square
        guard square > 0, estimate.isFinite else { return nil }
        let half = q * (variance.linear / 2 + variance.square * estimate)
        let root = max(0, half * half + square * q * variance.at(estimate)).squareRoot()
        let (low, high) = ((half - root) / square, (half + root) / square)
        guard low.isFinite, high.isFinite, low <= high else { return nil }
        return low...high
    }
}
