import Glibc

/// The sample ratio test: whether users are split among variations as expected. A wrong split shows that users were
/// lost or counted twice, so that no result of the experiment can be trusted. The test is valid at any time, and over
/// several periods with different expected shares.
///
/// The evidence of a period is a Bayes factor: how much better the counts are explained by shares that are spread
/// around the expected ones (a Dirichlet distribution) than by the expected ones themselves (Lindon and Malek,
/// Anytime-valid inference for multinomial count data, 2020, arXiv 2011.03567). While the split is correct, the
/// evidence is a nonnegative martingale that starts at 1, so the probability that it ever reaches 1/α is at most α
/// (Ville's inequality).
///
/// The product and the mean of the periods' evidence are such martingales, too. The product grows fastest if users are
/// lost in every period, the mean if they are lost in one. The test takes the mean of both.
///
/// A second test is about users of a variation that has no share; see ``strayShare``. The evidence of a period is the
/// mean of both tests.
public struct SampleRatio: Sendable, Equatable {
    /// The number of users of each variation in one period, and the expected shares.
    public struct Period: Sendable, Equatable {
        public var counts: [Int]
        /// Lists of relative shares, each with one share for each count, in any unit. The true expectation is some
        /// mixture of these lists. Nearly always there is only one.
        public var expected: [[Double]]

        public init(counts: [Int], expected: [[Double]]) {
            self.counts = counts
            self.expected = expected
        }
    }

    /// The evidence against a correct split, as the natural logarithm of a Bayes factor.
    public struct Test: Sendable, Equatable {
        public var logEvidence: Double

        /// The always-valid p-value: a correct split has a p-value of at most α at any time with a probability of at
        /// most α.
        public var pValue: Double { min(1, exp(-logEvidence)) }
    }

    /// One test for each period; `nil` for a period without users, or with fewer than two variations.
    public let tests: [Test?]

    public init(_ periods: [Period]) {
        tests = periods.map(Self.test)
    }

    /// The p-value of all periods together; `nil` if none has users.
    public var pValue: Double? {
        let logarithms = tests.compactMap { $0?.logEvidence }
        let logOfProduct = logarithms.reduce(0, +)
        guard let logOfMean = Self.logOfMean(logarithms),
            let logOfBoth = Self.logOfMean([logOfProduct, logOfMean])
        else { return nil }
        return Test(logEvidence: logOfBoth).pValue
    }

    /// Returns the logarithm of the mean of numbers, given their logarithms; `nil` for none.
    private static func logOfMean(_ logarithms: [Double]) -> Double? {
        guard let greatest = logarithms.max() else { return nil }
        return greatest + log(logarithms.reduce(0) { $0 + exp($1 - greatest) } / Double(logarithms.count))
    }

    /// The number of users that the expected shares count for in the Dirichlet distribution. A loss of one user in 50
    /// of a variation is then found soonest; a larger one is found early with any number.
    public static let concentration = 1_000.0

    private static func test(_ period: Period) -> Test? {
        let logarithms = [splitEvidence(period), strayEvidence(period)].compactMap(\.self)
        return logOfMean(logarithms).map { Test(logEvidence: $0) }
    }

    // MARK: Users of variations without a share

    /// The share of a period's users who may have a variation that should get nobody, in addition to ``strayCount``
    /// users. Some are unavoidable, because SDKs decide with a former definition until they have fetched the new one.
    public static let strayShare = 0.01
    /// The number of users of a period who may have a variation that should get nobody; see ``strayShare``.
    public static let strayCount = 20

    /// Returns the evidence that too many users have a variation without a share: the logarithm of a Bayes factor of
    /// any share of such users against the most likely share of at most ``strayShare``. `nil` if each variation has a
    /// share, or no share is known.
    private static func strayEvidence(_ period: Period) -> Double? {
        let hasShare = period.counts.indices.map { index in
            period.expected.contains { shares in shares.indices.contains(index) && shares[index] > 0 }
        }
        guard hasShare.contains(true), hasShare.contains(false) else { return nil }
        var strayUsers = 0
        for (count, isExpected) in zip(period.counts, hasShare) where !isExpected { strayUsers += count }
        let strays = Double(max(0, strayUsers - strayCount))
        let others = Double(period.counts.reduce(0, +) - strayUsers)
        guard strays + others > 0 else { return nil }
        // The likelihood of a share that is distributed uniformly, against that of the best share allowed.
        let logOfAnyShare =
            Gamma.logarithm(strays + 1) + Gamma.logarithm(others + 1) - Gamma.logarithm(strays + others + 2)
        let share = min(strays / (strays + others), strayShare)
        let logOfAllowedShare =
            (strays > 0 ? strays * log(share) : 0) + (others > 0 ? others * log(1 - share) : 0)
        return logOfAnyShare - logOfAllowedShare
    }

    // MARK: The split among variations with a share

    /// Returns the evidence that users are not split by the expected shares, as a logarithm. `nil` if fewer than two
    /// variations have a share, or none of those has users.
    private static func splitEvidence(_ period: Period) -> Double? {
        guard let first = period.expected.first else { return nil }
        let indices = first.indices.filter { first[$0] > 0 && period.counts.indices.contains($0) }
        let counts = indices.map { Double(period.counts[$0]) }
        let total = counts.reduce(0, +)
        let components = period.expected.compactMap { shares in
            normalized(indices.map { shares.indices.contains($0) ? shares[$0] : 0 })
        }
        guard indices.count > 1, total > 0, let usual = components.first else { return nil }
        // Takes the mixture that explains the counts best, because the evidence against the true mixture is at least as
        // great.
        let expected = components.count == 1 ? usual : mixture(of: components, counts, total)
        // The likelihood of the counts with spread shares, that is of a Dirichlet-multinomial distribution, and with
        // the expected shares. Both leave out the multinomial coefficient, which is the same.
        var logOfSpreadShares = Gamma.logarithm(concentration) - Gamma.logarithm(concentration + total)
        for (count, share) in zip(counts, usual) {
            let prior = concentration * share
            logOfSpreadShares = logOfSpreadShares + Gamma.logarithm(prior + count) - Gamma.logarithm(prior)
        }
        var logOfExpectedShares = 0.0
        for (count, share) in zip(counts, expected) where count > 0 { logOfExpectedShares += count * log(share) }
        return logOfSpreadShares - logOfExpectedShares
    }

    // MARK: Mixtures of expected shares

    /// The maximum number of components of a mixture. The time to find the best mixture grows with the number. See
    /// ``covering(_:)``.
    public static let componentLimit = 32

    /// Replaces components, if there are more than ``componentLimit``, by one for each count. The mixtures of the
    /// result are all splits that give each count at least the least share that it has in any component, so they
    /// include all mixtures of the components.
    public static func covering(_ components: [[Double]]) -> [[Double]] {
        let components = components.compactMap(normalized)
        guard components.count > componentLimit, let first = components.first else { return components }
        let least = first.indices.map { index in components.reduce(1) { min($0, $1[index]) } }
        let rest = max(0, 1 - least.reduce(0, +))
        return least.indices.map { index in
            var shares = least
            shares[index] += rest
            return shares
        }
    }

    /// Returns shares whose sum is 1; `nil` if all are 0.
    private static func normalized(_ shares: [Double]) -> [Double]? {
        let sum = shares.reduce(0, +)
        return sum > 0 ? shares.map { $0 / sum } : nil
    }

    /// Returns the mixture that explains the counts best, by expectation maximization.
    private static func mixture(of components: [[Double]], _ counts: [Double], _ total: Double) -> [Double] {
        // The mixtures of two shares are all splits between the extreme ones, so the nearest one needs no search.
        if counts.count == 2 {
            let shares = components.map { $0[0] }
            let nearest = min(max(counts[0] / total, shares.min() ?? 0), shares.max() ?? 1)
            return [nearest, 1 - nearest]
        }
        var weights = components.map { _ in 1 / Double(components.count) }
        var mixture: [Double] = []
        let maximumSteps = 500
        for _ in 0..<maximumSteps {
            mixture = counts.indices.map { index in
                zip(weights, components).reduce(0.0) { sum, part in
                    let (weight, shares) = part
                    return sum + weight * shares[index]
                }
            }
            var change = 0.0
            for (component, shares) in components.enumerated() {
                let factor = counts.indices.reduce(0.0) { sum, index in
                    mixture[index] > 0 ? sum + counts[index] / total * shares[index] / mixture[index] : sum
                }
                change = max(change, abs(factor - 1) * weights[component])
                weights[component] *= factor
            }
            // No weight changes any more.
            if change < 1e-9 { break }
        }
        return mixture
    }
}
