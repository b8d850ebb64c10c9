import Glibc

/// The posterior distributions of the success rates of a variation and its baseline, with uniform priors: each rate is
/// distributed as Beta(1 + successes, 1 + failures).
///
/// Integrals are computed numerically to about 1e-10, not simulated.
public struct RatePosterior: Sendable, Equatable {
    public let variation: Beta
    public let baseline: Beta

    public init(_ variation: Beta, against baseline: Beta) {
        self.variation = variation
        self.baseline = baseline
    }

    public init(successes: Double, of count: Double, againstSuccesses base: Double, of baseCount: Double) {
        self.init(Beta(1 + successes, 1 + count - successes), against: Beta(1 + base, 1 + baseCount - base))
    }

    /// The probability that the variation's rate is greater than the baseline's, and the expected loss of choosing the
    /// variation: the posterior mean of max(baseline - variation, 0).
    public var chanceToWinAndExpectedLoss: (chance: Double, loss: Double) {
        // For a rate x of the baseline, the expected loss is E[max(x - v, 0)] = x P(v < x) - E[v] P(v' < x), where v'
        // is distributed like the variation's rate v with one more success.
        let oneMoreSuccess = Beta(variation.a + 1, variation.b)
        var chance = 0.0
        var loss = 0.0
        integrate { x, weight in
            let below = variation.probability(upTo: x)
            chance += weight * (1 - below)
            loss += weight * (x * below - variation.mean * oneMoreSuccess.probability(upTo: x))
        }
        return (min(max(chance, 0), 1), max(loss, 0))
    }

    /// How many standard deviations to each side of the mean are integrated. Beyond them the density is negligible,
    /// even for rates near 0, whose distribution has an exponential tail.
    private static let reach = 40

    /// Integrates over the baseline's distribution: calls `body` with each point and the probability it stands for.
    private func integrate(_ body: (_ x: Double, _ weight: Double) -> Void) {
        let edges = edges
        for (low, high) in zip(edges, edges.dropFirst()) where high > low {
            let half = (high - low) / 2
            for (node, weight) in GaussLegendre.points {
                let x = low + half * (1 + node)
                let density = baseline.density(x)
                // Less would not change the sum of probabilities, which is 1, and both distribution functions are slow.
                if density * half > 1e-18 { body(x, weight * half * density) }
            }
        }
    }

    /// The bounds of the intervals to integrate. They are two standard deviations apart, of the narrower distribution
    /// where both overlap, so that both densities are smooth within each interval.
    private var edges: [Double] {
        func grid(_ beta: Beta) -> [Double] {
            stride(from: -Self.reach, through: Self.reach, by: 2).map { step in
                beta.mean + Double(step) * beta.standardDeviation
            }
        }
        let own = grid(baseline).map { min(max($0, 0), 1) }
        guard let low = own.first, let high = own.last else { return [] }
        return (own + grid(variation).filter { $0 > low && $0 < high }).sorted()
    }
}

/// Gauss-Legendre quadrature with 16 points on -1...1, exact for polynomials up to degree 31. The points are the roots
/// of the Legendre polynomial P16, and the weights follow from its slope there (Abramowitz and Stegun 25.4.29).
enum GaussLegendre {
    static let points: [(node: Double, weight: Double)] = {
        let degree = 16
        return (0..<degree).map { index in
            // An approximation of the root, which Newton's method refines.
            var x = -cos(Double.pi * (Double(index) + 0.75) / (Double(degree) + 0.5))
            var slope = 1.0
            for _ in 0..<10 {
                // P(n-1) and P(n) at x, by the recurrence n P(n) = (2n - 1) x P(n-1) - (n - 1) P(n-2).
                var (former, value) = (1.0, x)
                for n in 2...degree {
                    let n = Double(n)
                    (former, value) = (value, ((2 * n - 1) * x * value - (n - 1) * former) / n)
                }
                // The derivative of P(n) at x.
                slope = Double(degree) * (x * value - former) / (x * x - 1)
                x -= value / slope
            }
            return (x, 2 / ((1 - x * x) * slope * slope))
        }
    }()

    /// Returns the integral of a function.
    static func integral(from low: Double, to high: Double, _ body: (Double) -> Double) -> Double {
        let half = (high - low) / 2
        return points.reduce(0) { $0 + $1.weight * half * body(low + half * (1 + $1.node)) }
    }
}
