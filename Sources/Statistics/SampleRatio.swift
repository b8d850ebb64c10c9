import Glibc

/// Pearson's test of a split into variations over several periods with different expected shares.
///
/// The statistics of the periods are independent and each has a chi-square distribution, so their sum has one with the
/// sum of the degrees of freedom (Cochran, Some methods for strengthening the common chi-square tests, 1954).
public struct SampleRatio: Sendable, Equatable {
    /// The counts of one period and what is expected of them.
    public struct Period: Sendable, Equatable {
        public var counts: [Int]
        /// Relative shares, one for each count, in any unit. The true expectation is some mixture of these: nearly always
        /// there is only one.
        public var expected: [[Double]]

        public init(counts: [Int], expected: [[Double]]) {
            self.counts = counts
            self.expected = expected
        }
    }

    /// The test of one period.
    public struct Test: Sendable, Equatable {
        public var statistic: Double
        public var degreesOfFreedom: Int

        public var pValue: Double {
            ChiSquare.probability(above: statistic, degreesOfFreedom: degreesOfFreedom)
        }
    }

    /// One for each period; `nil` for those with too few users.
    public let tests: [Test?]

    public init(_ periods: [Period]) {
        tests = periods.map(Self.test)
    }

    /// The p-value of all periods together; `nil` if none has enough users.
    public var pValue: Double? {
        let tests = tests.compactMap { $0 }
        guard !tests.isEmpty else { return nil }
        return Test(
            statistic: tests.reduce(0) { $0 + $1.statistic },
            degreesOfFreedom: tests.reduce(0) { $0 + $1.degreesOfFreedom }
        ).pValue
    }

    /// The least expected count of a variation. With fewer the statistic does not have a chi-square distribution
    /// (Cochran, The chi-square test of goodness of fit, 1952).
    public static let leastExpected = 5.0

    private static func test(_ period: Period) -> Test? {
        guard let first = period.expected.first else { return nil }
        // A count without a share is ignored.
        let indices = first.indices.filter { first[$0] > 0 && period.counts.indices.contains($0) }
        let counts = indices.map { Double(period.counts[$0]) }
        let total = counts.reduce(0, +)
        let components = period.expected.compactMap { shares in
            normalized(indices.map { shares.indices.contains($0) ? shares[$0] : 0 })
        }
        guard indices.count > 1, total > 0, !components.isEmpty else { return nil }
        let expected = components.count == 1 ? components[0] : mixture(of: components, counts, total)
        guard expected.allSatisfy({ total * $0 >= leastExpected }) else { return nil }
        let statistic = zip(counts, expected).reduce(0.0) { sum, pair in
            let difference = pair.0 - total * pair.1
            return sum + difference * difference / (total * pair.1)
        }
        return Test(statistic: statistic, degreesOfFreedom: indices.count - 1)
    }

    /// The number of components of a mixture that are considered one by one.
    public static let componentLimit = 32

    /// Returns few components whose mixtures include all mixtures of many: every split that gives each count at least
    /// the least share that it has in any of them.
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

    /// Returns the mixture that explains the counts best, by expectation maximization: the statistic is then at most
    /// what the true mixture would give, so that false alarms are no more frequent than stated.
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
