import Glibc

/// Student's t distribution.
public struct StudentT: Sendable, Equatable {
    /// Greater than 0; need not be whole.
    public let degreesOfFreedom: Double

    public init(degreesOfFreedom: Double) {
        self.degreesOfFreedom = degreesOfFreedom
    }

    /// The probability of a value at least as far from 0 as `t`, on either side (Abramowitz and Stegun 26.7.1 and
    /// 26.5.27).
    public func probability(beyond t: Double) -> Double {
        let sum = degreesOfFreedom + t * t
        return Beta.regularised(degreesOfFreedom / 2, 0.5, degreesOfFreedom / sum, t * t / sum)
    }

    func density(_ t: Double) -> Double {
        let half = degreesOfFreedom / 2
        return exp(-Beta.logFunction(half, 0.5) - (half + 0.5) * log1p(t * t / degreesOfFreedom))
            / degreesOfFreedom.squareRoot()
    }

    /// The distance from 0 that is exceeded, on either side, with a probability.
    ///
    /// Newton's method, kept within the interval that is known to hold the answer.
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
