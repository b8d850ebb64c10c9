import Glibc

/// Intervals that hold at all times at once, however often one looks and whenever one stops: the asymptotic
/// confidence sequences of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Time-uniform central limit theory and
/// asymptotic confidence sequences, 2021 (arXiv 2103.06476).
public struct ConfidenceSequence: Sendable, Equatable {
    /// The probability that the truth is ever outside.
    public let alpha: Double
    private let rhoSquared: Double

    /// - Parameter tuning: the number of users of both sides at which the interval is to be narrowest, compared with
    ///   what it could be at best.
    public init(alpha: Double, tuning: Double) {
        self.alpha = alpha
        let logarithm = -2 * log(alpha)
        // Their equation for the best rho at one sample size.
        rhoSquared = (logarithm + log(logarithm + 1)) / tuning
    }

    /// - Parameter count: values of both sides together.
    public func interval(_ effect: Effect, count: Double) -> ClosedRange<Double>? {
        guard count > 0 else { return nil }
        let scale = count * rhoSquared + 1
        let factor = (2 * scale * log(scale.squareRoot() / alpha) / (count * rhoSquared)).squareRoot()
        return effect.interval(halfWidth: factor)
    }

    /// The smallest alpha at which the interval leaves out 0; valid at all times as well.
    public func pValue(_ effect: Effect, count: Double) -> Double? {
        guard count > 0, effect.variance > 0 else { return nil }
        let scale = count * rhoSquared + 1
        let distance = effect.estimate / effect.standardError
        let square = distance * distance
        return min(1, scale.squareRoot() * exp(-count * rhoSquared * square / (2 * scale)))
    }
}
