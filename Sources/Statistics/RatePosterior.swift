import Glibc

/// What is known of the rates of a variation and its baseline when nothing was known of them before: each is
/// distributed as Beta(1 + successes, 1 + failures). Integrated numerically to about 1e-10, not simulated.
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

    /// The probability that the variation's rate is the greater one, and how much is lost on average by choosing it:
    /// the mean of what the baseline's rate is greater by, where it is, and else 0.
    public var chanceToWinAndExpectedLoss: (chance: Double, loss: Double) {
        // E[max(x - v, 0)] = x P(v < x) - E[v] P(v' < x), where v' has one success more.
        let weighted = Beta(variation.a + 1, variation.b)
        var (chance, loss) = (0.0, 0.0)
        integrate { x, weight in
            let below = variation.probability(upTo: x)
            chance += weight * (1 - below)
            loss += weight * (x * below - variation.mean * weighted.probability(upTo: x))
        }
        return (min(max(chance, 0), 1), max(loss, 0))
    }

    /// Standard deviations to each side of a mean beyond which there is nothing to speak of, also for rates near 0
    /// that are distributed as waiting times are.
    private static let reach = 40

    /// Calls back with points and what each stands for of the baseline's distribution.
    private func integrate(_ body: (_ x: Double, _ weight: Double) -> Void) {
        let edges = edges
        for (low, high) in zip(edges, edges.dropFirst()) where high > low {
            let half = (high - low) / 2
            for (node, weight) in GaussLegendre.points {
                let x = low + half * (1 + node)
                let density = baseline.density(x)
                if density * half > 1e-18 { body(x, weight * half * density) }
            }
        }
    }

    /// Where both distributions are smooth in between.
    private var edges: [Double] {
        func grid(_ beta: Beta) -> [Double] {
            stride(from: -Self.reach, through: Self.reach, by: 2).map { beta.mean + Double($0) * beta.standardDeviation }
        }
        let own = grid(baseline).map { min(max($0, 0), 1) }
        guard let low = own.first, let high = own.last else { return [] }
        return (own + grid(variation).filter { $0 > low && $0 < high }).sorted()
    }
}

/// Points and weights on -1...1 that integrate polynomials up to degree 31 exactly: the roots of the Legendre
/// polynomial P16 (Abramowitz and Stegun 25.4.29), found by Newton's method.
private enum GaussLegendre {
    static let points: [(node: Double, weight: Double)] = {
        let degree = 16
        return (0..<degree).map { index in
            var x = -cos(Double.pi * (Double(index) + 0.75) / (Double(degree) + 0.5))
            var slope = 1.0
            for _ in 0..<10 {
                var (former, value) = (1.0, x)
                for n in 2...degree {
                    let n = Double(n)
                    (former, value) = (value, ((2 * n - 1) * x * value - (n - 1) * former) / n)
                }
                slope = Double(degree) * (x * value - former) / (x * x - 1)
                x -= value / slope
            }
            return (x, 2 / ((1 - x * x) * slope * slope))
        }
    }()
}
