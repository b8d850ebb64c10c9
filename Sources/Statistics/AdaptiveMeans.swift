/// Estimates of the means of variations whose users were assigned with probabilities that changed, as those of a bandit do.
///
/// A plain mean over all users is biased then: a variation gets many users after it did well, and users of another time
/// may differ. Each user is therefore weighted by the inverse of the probability of the variation that the user got. An
/// augmentation term reduces the variance without changing the expectation. This is the adaptively weighted estimator
/// of Hadad, Hirshberg, Zhan, Wager and Athey, Confidence intervals for policy evaluation in adaptive experiments,
/// 2021, with constant weights. The mean that augments a batch comes from earlier batches, so that the estimate is
/// unbiased whatever the probabilities depend on.
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

    /// For each variation: the number of its users, the estimate, and a variance that, divided by the number, is the squared
    /// standard error of the estimate.
    public let samples: [Sample]

    /// - Parameters:
    ///   - batches: in the order of time. A batch in which a variation had no share is ignored for that variation.
    ///   - count: the number of variations.
    public init(_ batches: [Batch], of count: Int) {
        let batches = batches.filter { $0.count > 0 }
        samples = (0..<count).map { index in Self.sample(index, batches.filter { $0.shares[index] > 0 }) }
    }

    private static func sample(_ index: Int, _ batches: [Batch]) -> Sample {
        // The users of the variation so far.
        var (known, sum) = (0.0, 0.0)
        var (total, weighted) = (0.0, 0.0)
        var augmenting: [Double] = []
        for batch in batches {
            let own = batch.samples[index]
            let mean = known > 0 ? sum / known : own.count > 0 ? own.mean : batch.mean
            augmenting.append(mean)
            weighted += batch.count * mean + own.count * (own.mean - mean) / batch.shares[index]
            total += batch.count
            known += own.count
            sum += own.count * own.mean
        }
        guard known > 0 else { return Sample(count: 0, mean: 0, variance: 0) }
        let estimate = weighted / total
        // The sum of the squared deviations of the variation's users over all batches.
        let spread = zip(batches, augmenting).reduce(0) { sum, part in
            let (own, apart) = (part.0.samples[index], part.0.samples[index].mean - part.1)
            return sum + own.count * (own.variance + apart * apart)
        }
        var (squares, common) = (0.0, 0.0)
        for (batch, mean) in zip(batches, augmenting) {
            let (own, share, offset) = (batch.samples[index], batch.shares[index], mean - estimate)
            let apart = own.mean - mean
            let shift =
                (batch.count - own.count) * offset * offset
                + own.count * (offset * offset + 2 * offset * apart / share)
            squares += shift + own.count * (own.variance + apart * apart) / (share * share)
            common += shift + own.count * spread / known / (share * share)
        }
        return Sample(count: known, mean: estimate, variance: known * max(squares, common) / (total * total))
    }
}

/// The probability of each of several means to be the greatest, if each is normally distributed around its estimate.
///
/// Computed numerically, not from random draws, so that the result is reproducible.
public enum ChanceToBeBest {
    /// The number of standard errors to each side of an estimate that are integrated.
    private static let reach = 8

    /// - Parameter means: with variances greater than 0.
    public static func of(_ means: [Effect]) -> [Double] {
        let edges = means.map { mean in
            (-reach...reach).map { mean.estimate + Double($0) * mean.standardError }
        }
        let all = edges.flatMap { $0 }.sorted()
        let chances = means.indices.map { index -> Double in
            guard let low = edges[index].first, let high = edges[index].last else { return 0 }
            let own = all.filter { (low...high).contains($0) }
            return zip(own, own.dropFirst()).reduce(0) { sum, edge in
                sum + GaussLegendre.integral(from: edge.0, to: edge.1) { density($0, of: index, among: means) }
            }
        }
        let sum = chances.reduce(0, +)
        return chances.map { $0 / sum }
    }

    /// The density of a mean at a point, times the probability that all others are less.
    private static func density(_ x: Double, of index: Int, among means: [Effect]) -> Double {
        var product = Normal.density((x - means[index].estimate) / means[index].standardError)
        product /= means[index].standardError
        for (other, mean) in means.enumerated() where other != index && product > 1e-300 {
            product *= Normal.probability(upTo: (x - mean.estimate) / mean.standardError)
        }
        return product
    }
}
