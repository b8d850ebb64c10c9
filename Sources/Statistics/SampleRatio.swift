import Glibc

/// The test of whether users are split among variations as expected. Its result is valid at any time, and over several
/// periods with different expected shares.
///
/// The evidence of a period is a Bayes factor: how much better the counts are explained by shares that are spread around
/// the expected ones (a Dirichlet distribution) than by the expected ones themselves (Lindon and Malek, Anytime-valid
/// inference for multinomial count data, 2020, arXiv 2011.03567). While the split is correct, the evidence is a
/// nonnegative martingale that starts at 1, so the probability that it ever reaches 1/α is at most α (Ville's inequality).
///
/// The product and the mean of the periods' evidence are such martingales, too. The product grows fastest if users are
/// lost in every period, the mean if they are lost in one. The test takes the mean of both.
///
/// Counts of which none is expected are tested on their own, see ``strayShare``, and the evidence of a period is the mean of
/// both tests.
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

    /// One for each period; `nil` for those without users, or with fewer than two variations.
    public let tests: [Test?]

    public init(_ periods: [Period]) {
        tests = periods.map(Self.test)
    }

    /// The p-value of all periods together; `nil` if none has users.
    public var pValue: Double? {
        let logarithms = tests.compactMap { $0?.logEvidence }
        guard let mean = Self.mean(logarithms), let both = Self.mean([logarithms.reduce(0, +), mean]) else {
            return nil
        }
        return Test(logEvidence: both).pValue
    }

    /// Returns the logarithm of the mean of numbers, given their logarithms; `nil` for none.
    private static func mean(_ logarithms: [Double]) -> Double? {
        guard let greatest = logarithms.max() else { return nil }
        return greatest + log(logarithms.reduce(0) { $0 + exp($1 - greatest) } / Double(logarithms.count))
    }

    /// The number of users that the expected shares count for in the Dirichlet distribution. A loss of one user in 50 of a
    /// variation is then found soonest; a larger one is found early with any number.
    public static let concentration = 1_000.0

    private static func test(_ period: Period) -> Test? {
        mean([splitEvidence(period), strayEvidence(period)].compactMap(\.self)).map { Test(logEvidence: $0) }
    }

    // MARK: Counts of which none is expected

    /// The share of a period's users who may have a variation that nobody is to get, besides ``strayCount`` of them: SDKs
    /// decide with a former definition until they have read the new one.
    public static let strayShare = 0.01
    public static let strayCount = 20

    /// Returns the evidence that more users have a variation without a share than may: a Bayes factor of any share against the
    /// most likely one of at most ``strayShare``. `nil` if each count has a share, or no share is known.
    private static func strayEvidence(_ period: Period) -> Double? {
        let expected = period.counts.indices.map { index in
            period.expected.contains { $0.indices.contains(index) && $0[index] > 0 }
        }
        guard expected.contains(true), expected.contains(false) else { return nil }
        let strays = zip(period.counts, expected).reduce(0) { $1.1 ? $0 : $0 + $1.0 }
        let counted = Double(max(0, strays - strayCount))
        let others = Double(period.counts.reduce(0, +) - strays)
        guard counted + others > 0 else { return nil }
        let any = Gamma.logarithm(counted + 1) + Gamma.logarithm(others + 1) - Gamma.logarithm(counted + others + 2)
        let share = min(counted / (counted + others), strayShare)
        let few = (counted > 0 ? counted * log(share) : 0) + (others > 0 ? others * log(1 - share) : 0)
        return any - few
    }

    // MARK: The split

    /// Returns the evidence that the counts with a share are split otherwise than expected; `nil` for fewer than two, or
    /// without users.
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
        let mixed = zip(counts, usual).reduce(
            Gamma.logarithm(concentration) - Gamma.logarithm(concentration + total)
        ) { sum, pair in
            let prior = concentration * pair.1
            return sum + Gamma.logarithm(prior + pair.0) - Gamma.logarithm(prior)
        }
        let correct = zip(counts, expected).reduce(0.0) { $1.0 > 0 ? $0 + $1.0 * log($1.1) : $0 }
        return mixed - correct
    }

    /// The maximum number of components of a mixture; see ``covering(_:)``.
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

    private static func normalized(_ shares: [Double]) -> [Double]? {
        let sum = shares.reduce(0, +)
        return sum > 0 ? shares.map { $0 / sum } : nil
    }

    /// Returns the mixture that explains the counts best, by expectation maximization.
    private static func mixture(of components: [[Double]], _ counts: [Double], _ total: Double) -> [Double] {
        if counts.count == 2 {
            let shares = components.map { $0[0] }
            let nearest = min(max(counts[0] / total, shares.min() ?? 0), shares.max() ?? 1)
            return [nearest, 1 - nearest]
        }
        var weights = components.map { _ in 1 / Double(components.count) }
        var mixture: [Double] = []
        for _ in 0..<500 {
            mixture = counts.indices.map { index in
                zip(weights, components).reduce(0) { $0 + $1.0 * $1.1[index] }
            }
            var change = 0.0
            for (component, shares) in components.enumerated() {
                let factor = counts.indices.reduce(0.0) { sum, index in
                    mixture[index] > 0 ? sum + counts[index] / total * shares[index] / mixture[index] : sum
                }
                change = max(change, abs(factor - 1) * weights[component])
                weights[component] *= factor
            }
            if change < 1e-9 { break }
        }
        return mixture
    }
}
