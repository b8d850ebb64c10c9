import Glibc

/// The standard normal distribution.
public enum Normal {
    private static let logOfSquareRootOfTwoPi = 0.918_938_533_204_672_741_78

    public static func density(_ x: Double) -> Double {
        exp(-x * x / 2 - logOfSquareRootOfTwoPi)
    }

    /// Returns the cumulative probability P(X ≤ x), accurate in both tails.
    public static func probability(upTo x: Double) -> Double {
        erfc(-x / 2.0.squareRoot()) / 2
    }

    /// Returns the quantile: the `x` with P(X ≤ x) = `probability`.
    ///
    /// Starts with the approximation 26.2.23 of Abramowitz and Stegun, Handbook of Mathematical Functions, and refines
    /// it with Halley's method.
    ///
    /// - Parameter probability: between 0 and 1; returns an infinity at and beyond these.
    public static func quantile(_ probability: Double) -> Double {
        guard probability > 0 else { return -.infinity }
        guard probability < 1 else { return .infinity }
        // Work in the lower tail, where a `Double` represents small probabilities exactly.
        guard probability <= 0.5 else { return -quantile(1 - probability) }
        let t = (-2 * log(probability)).squareRoot()
        var x =
            -(t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))))
        for _ in 0..<3 {
            let step = (Self.probability(upTo: x) - probability) / density(x)
            x -= step / (1 + x * step / 2)
        }
        return x
    }
}

/// Student's t distribution.
public struct StudentT: Sendable, Equatable {
    /// Greater than 0; may be fractional.
    public let degreesOfFreedom: Double

    public init(degreesOfFreedom: Double) {
        self.degreesOfFreedom = degreesOfFreedom
    }

    /// Returns the two-sided tail probability P(|T| ≥ |t|) (Abramowitz and Stegun 26.7.1 and 26.5.27).
    public func probability(beyond t: Double) -> Double {
        let sum = degreesOfFreedom + t * t
        return Beta.regularised(degreesOfFreedom / 2, 0.5, degreesOfFreedom / sum, t * t / sum)
    }

    func density(_ t: Double) -> Double {
        let half = degreesOfFreedom / 2
        return exp(-Beta.logFunction(half, 0.5) - (half + 0.5) * log1p(t * t / degreesOfFreedom))
            / degreesOfFreedom.squareRoot()
    }

    /// Returns the two-sided critical value: the `t` with P(|T| ≥ t) = `probability`.
    ///
    /// Uses Newton's method and falls back to bisection where a step would leave the bracket.
    ///
    /// - Parameter probability: between 0 and 1.
    public func distance(exceededWith probability: Double) -> Double {
        guard probability > 0 else { return .infinity }
        guard probability < 1 else { return 0 }
        var low = 0.0
        var high = 1.0
        while self.probability(beyond: high) > probability, high < 1e300 {
            low = high
            high *= 2
        }
        var t = min(max(-Normal.quantile(probability / 2), low), high)
        for _ in 0..<200 {
            let excess = self.probability(beyond: t) - probability
            if excess > 0 { low = t } else { high = t }
            let next = t + excess / (2 * density(t))
            let guarded = next > low && next < high ? next : (low + high) / 2
            if abs(guarded - t) <= 1e-15 * max(1, t) { return guarded }
            t = guarded
        }
        return t
    }
}
