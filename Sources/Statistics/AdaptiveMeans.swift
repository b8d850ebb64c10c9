/// Estimates the means of variations whose users were assigned with probabilities that changed, as a bandit changes
/// them.
///
/// A plain mean over all users would be biased: a variation gets many users after it did well, and users of another
/// time may differ. Each user is therefore weighted by the inverse of the probability of the variation that the user
/// got. An augmentation term reduces the variance without changing the expectation. This is the adaptively weighted
/// estimator of Hadad, Hirshberg, Zhan, Wager and Athey, Confidence intervals for policy evaluation in adaptive
/// experiments, 2021, with constant weights. The mean that augments a batch comes from earlier batches, if these have
/// users of the variation, so that the estimate is unbiased even though the probabilities depend on earlier values.
///
/// The variance is the greater of two. The first uses the spread of the users in each batch; the second uses the spread
/// of the variation's users over all batches for each batch. The second is needed because a batch with a small share
/// has few users of the variation: if none of them happens to do anything, both the estimate and the first variance are
/// too small.
public struct AdaptiveMeans: Sendable {
    /// Users who were assigned with the same probabilities.
    public struct Batch: Sendable {
        /// The probability of each variation.
        public var shares: [Double]
        /// The values of the users of each variation.
        public var samples: [Sample]

        public init(shares: [Double], samples: [Sample]) {
            self.shares = shares
            self.samples = samples
        }

        fileprivate var count: Double { samples.reduce(0) { $0 + $1.count } }

        /// The mean of all users of all variations.
        fileprivate var mean: Double { samples.reduce(0) { $0 + $1.count * $1.mean } / count }
    }

    /// A sample for each variation. Its mean is the estimate. Its variance is such that ``Sample/varianceOfMean`` is
    /// the squared standard error of the estimate.
    public let samples: [Sample]

    /// - Parameters:
    ///   - batches: in the order of time. A batch in which a variation had no share is ignored for that variation.
    ///   - count: the number of variations.
    public init(_ batches: [Batch], of count: Int) {
        let batches = batches.filter { $0.count > 0 }
        samples = (0..<count).map { index in Self.sample(index, batches.filter { $0.shares[index] > 0 }) }
    }

    /// Estimates the mean of one variation.
    ///
    /// With the augmenting mean m of a batch, a user with the value y of a variation with the share p has the score
    /// m + (y - m) / p, and a user of another variation has the score m. The estimate is the mean of all scores.
    private static func sample(_ index: Int, _ batches: [Batch]) -> Sample {
        var userCount = 0.0
        var sumOfScores = 0.0
        // The users of the variation in the batches so far, and the sum of their values.
        var ownCount = 0.0
        var ownSum = 0.0
        var augmentingMeans: [Double] = []
        for batch in batches {
            let own = batch.samples[index]
            let mean: Double
            if ownCount > 0 {
                mean = ownSum / ownCount
            } else {
                // No earlier batch has users of the variation.
                mean = own.count > 0 ? own.mean : batch.mean
            }
            augmentingMeans.append(mean)
            sumOfScores += batch.count * mean + own.count * (own.mean - mean) / batch.shares[index]
            userCount += batch.count
            ownCount += own.count
            ownSum += own.count * own.mean
        }
        guard ownCount > 0 else { return Sample(count: 0, mean: 0, variance: 0) }
        let estimate = sumOfScores / userCount
        let squares = squaredDeviations(
            of: index, batches, augmentingMeans, from: estimate, ownCount: ownCount)
        return Sample(count: ownCount, mean: estimate, variance: ownCount * squares / (userCount * userCount))
    }

    /// Returns the sum of the squared deviations of the scores from the estimate: once with the spread of users within
    /// each batch, once with their spread over all batches. The greater sum counts.
    private static func squaredDeviations(
        of index: Int, _ batches: [Batch], _ augmentingMeans: [Double], from estimate: Double, ownCount: Double
    ) -> Double {
        // The sum of the squared deviations of the variation's users from the augmenting means, over all batches.
        var spread = 0.0
        for (batch, mean) in zip(batches, augmentingMeans) {
            let own = batch.samples[index]
            let distance = own.mean - mean
            spread += own.count * (own.variance + distance * distance)
        }
        var withOwnSpread = 0.0
        var withCommonSpread = 0.0
        for (batch, mean) in zip(batches, augmentingMeans) {
            let own = batch.samples[index]
            let share = batch.shares[index]
            let distance = own.mean - mean
            let offset = mean - estimate
            // What the deviation of the augmenting mean from the estimate adds.
            let shift =
                (batch.count - own.count) * offset * offset
                + own.count * (offset * offset + 2 * offset * distance / share)
            withOwnSpread += shift + own.count * (own.variance + distance * distance) / (share * share)
            withCommonSpread += shift + own.count * spread / ownCount / (share * share)
        }
        return max(withOwnSpread, withCommonSpread)
    }
}

/// The probability of each of several means to be the greatest, if each is normally distributed around its estimate.
///
/// Computed numerically, not from random draws, so that the result is reproducible.
public enum ChanceToBeBest {
    /// The number of standard errors to each side of an estimate that are integrated. The probability beyond 8 standard
    /// errors is about 1e-15, which is negligible.
    private static let reach = 8

    /// Returns the probabilities, which add up to 1.
    ///
    /// - Parameter means: with variances greater than 0.
    public static func of(_ means: [Effect]) -> [Double] {
        // Intervals of one standard error of the mean, and shorter where the intervals of several means overlap.
        let edges = means.map { mean in
            (-reach...reach).map { mean.estimate + Double($0) * mean.standardError }
        }
        let all = edges.flatMap { $0 }.sorted()
        let chances = means.indices.map { index -> Double in
            guard let low = edges[index].first, let high = edges[index].last else { return 0 }
            let own = all.filter { (low...high).contains($0) }
            var chance = 0.0
            for (start, end) in zip(own, own.dropFirst()) {
                chance += GaussLegendre.integral(from: start, to: end) { density($0, of: index, among: means) }
            }
            return chance
        }
        // The sum differs from 1 by the errors of the integration.
        let sum = chances.reduce(0, +)
        return chances.map { $0 / sum }
    }

    /// The density of a mean at a point, times the probability that all others are less.
    private static func density(_ x: Double, of index: Int, among means: [Effect]) -> Double {
        var product = Normal.density((x - means[index].estimate) / means[index].standardError)
        product /= means[index].standardError
        // A smaller product would not change the integral, so the remaining factors are skipped.
        for (other, mean) in means.enumerated() where other != index && product > 1e-300 {
            product *= Normal.probability(upTo: (x - mean.estimate) / mean.standardError)
        }
        return product
    }
}
