import Glibc

/// A hypothesis that a contrast is tested against.
public enum NullHypothesis: Sendable, Equatable {
    /// The variation's mean is the baseline's mean, changed by this share of its magnitude: m1 = m0 + lift · |m0|.
    case lift(Double)
    /// The variation's mean is the baseline's mean plus this number: m1 = m0 + difference.
    case difference(Double)

    /// No effect.
    public static let noEffect = NullHypothesis.lift(0)
}

/// A comparison of a variation with its baseline by m1 - k·m0: the difference between the variation's mean and a
/// multiple of the baseline's.
///
/// All tests are made of one number, the squared z of a hypothesis, which measures the evidence against the hypothesis.
/// For rates it is the likelihood ratio of two binomials (``RateContrast``); for means and ratios it is the squared
/// contrast in units of its variance (``MeanContrast``). A ``LookingRule`` converts the number to p-values and
/// intervals: ``OneLook`` for one look at the results, ``AlwaysValid`` for any number of looks. Because both come from
/// the same number, an interval excludes a hypothesis if and only if the p-value of the hypothesis is below the level.
///
///     let contrast = RateContrast([.init(100, of: 5_000, baseline: 50, of: 5_000)])!
///     contrast.squaredZ(.noEffect)                                  // 17.24
///     AlwaysValid().pValue(contrast, .noEffect)                     // 0.0012, however often you look
///     AlwaysValid().lifts(of: contrast, alpha: 0.05)                // 0.196...2.452
public protocol Contrast: Sendable {
    /// The variation's estimated mean minus the baseline's.
    var difference: Double { get }
    /// The difference as a share of the magnitude of the baseline's mean; `nil` if that mean is 0.
    var lift: Double? { get }
    /// The number of users that would give the same precision if both sides had equally many: 4·n1·n0 / (n1 + n0),
    /// added up over periods. 100 users against 900 are as precise as 180 against 180, which are 360 effective users.
    var effectiveUsers: Double { get }

    /// Returns the evidence against a hypothesis. If the hypothesis holds, it is distributed as chi-squared with one
    /// degree of freedom.
    func squaredZ(_ hypothesis: NullHypothesis) -> Double

    /// Whether the estimate is above the value of a hypothesis.
    func isAbove(_ hypothesis: NullHypothesis) -> Bool

    /// Returns the differences whose squared z is at most a number.
    ///
    /// - Returns: `nil` if they are not bounded.
    func differences(upTo squaredZ: Double) -> ClosedRange<Double>?

    /// Returns the lifts whose squared z is at most a number. The upper bound is infinite if the baseline's rate may be
    /// 0.
    ///
    /// - Returns: `nil` if they are not bounded, or if the baseline's mean is 0.
    func lifts(upTo squaredZ: Double) -> ClosedRange<Double>?
}

/// How often results may be looked at, as a test: the p-value of a squared z, and the squared z that a level requires.
public protocol LookingRule: Sendable {
    /// Returns the p-value of a squared z.
    func pValue(squaredZ: Double, effectiveUsers: Double) -> Double

    /// Returns the greatest squared z that is not rejected at a level.
    func squaredZ(alpha: Double, effectiveUsers: Double) -> Double
}

extension LookingRule {
    /// Returns the p-value of a hypothesis.
    public func pValue(_ contrast: any Contrast, _ hypothesis: NullHypothesis) -> Double {
        pValue(squaredZ: contrast.squaredZ(hypothesis), effectiveUsers: contrast.effectiveUsers)
    }

    /// Returns the differences that are not rejected at a level; `nil` if they are not bounded.
    public func differences(of contrast: any Contrast, alpha: Double) -> ClosedRange<Double>? {
        contrast.differences(upTo: squaredZ(alpha: alpha, effectiveUsers: contrast.effectiveUsers))
    }

    /// Returns the lifts that are not rejected at a level; `nil` if they are not bounded.
    public func lifts(of contrast: any Contrast, alpha: Double) -> ClosedRange<Double>? {
        contrast.lifts(upTo: squaredZ(alpha: alpha, effectiveUsers: contrast.effectiveUsers))
    }
}

/// One look at a time that was planned in advance: the two-sided normal test.
public struct OneLook: LookingRule {
    public init() {}

    public func pValue(squaredZ: Double, effectiveUsers: Double) -> Double {
        min(1, 2 * Normal.probability(upTo: -squaredZ.squareRoot()))
    }

    public func squaredZ(alpha: Double, effectiveUsers: Double) -> Double {
        let z = Normal.quantile(alpha / 2)
        return z * z
    }
}

/// Any number of looks at any time: the mixture of normal likelihood ratios over effects, an e-process (Robbins,
/// Statistical methods related to the law of the iterated logarithm, 1970; Howard, Ramdas, McAuliffe and Sekhon,
/// Time-uniform, nonparametric, nonasymptotic confidence sequences, 2021). The probability that the p-value of a true
/// hypothesis ever falls to a level is at most that level, asymptotically.
///
/// With r = ρ²·n, of n effective users, the evidence against a hypothesis is E = exp(z²/2 · r/(1+r)) / √(1+r), and the
/// p-value 1/E. It is never below the p-value of one look.
public struct AlwaysValid: LookingRule {
    /// ρ², the variance of the mixture. It determines at which number of users intervals are narrow.
    private let rhoSquared: Double

    /// - Parameter tuning: the number of users of both sides at which intervals of the level 0.05 are narrowest; any
    ///   value is valid, at every level.
    public init(tuning: Double = Self.tuning) {
        let logarithm = -2 * log(0.05)
        // The approximation of the optimal ρ for one sample size: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas,
        // Time-uniform central limit theory and asymptotic confidence sequences, 2021, appendix B.
        rhoSquared = (logarithm + log(logarithm + 1)) / tuning
    }

    /// The tuning unless the caller chooses another one.
    public static let tuning = 5_000.0

    public func pValue(squaredZ: Double, effectiveUsers: Double) -> Double {
        let information = rhoSquared * effectiveUsers
        return min(1, exp(log1p(information) / 2 - squaredZ / 2 * information / (1 + information)))
    }

    public func squaredZ(alpha: Double, effectiveUsers: Double) -> Double {
        let information = rhoSquared * effectiveUsers
        // Solves `pValue(squaredZ:effectiveUsers:)` = alpha for the squared z.
        return 2 * (1 + 1 / information) * (log(1 / alpha) + log1p(information) / 2)
    }
}

/// Finds zeros of functions.
enum Root {
    /// A point of a function.
    private struct Point {
        let x: Double
        let value: Double
    }

    private static let maximumSteps = 200

    /// Returns a zero between two points at which a continuous function has different signs, by inverse quadratic
    /// interpolation with bisection (Chandrupatla, A new hybrid quadratic/bisection algorithm for finding the zero of a
    /// nonlinear function without using derivatives, 1997).
    static func between(_ start: Double, _ end: Double, _ function: (Double) -> Double) -> Double {
        // The names are those of the paper: `a` is the newest point, `b` the point on the other side of the zero, and
        // `c` the point that was replaced last. `step` is the place of the next point between `a` (0) and `b` (1).
        var a = Point(x: end, value: function(end))
        var b = Point(x: start, value: function(start))
        var c = a
        var step = 0.5
        for _ in 0..<maximumSteps {
            let x = a.x + step * (b.x - a.x)
            let next = Point(x: x, value: function(x))
            if (next.value > 0) == (a.value > 0) {
                c = a
            } else {
                c = b
                b = a
            }
            a = next
            let best = abs(a.value) < abs(b.value) ? a : b
            let width = abs(b.x - a.x)
            // About twice the precision of a `Double`. The second term is for a zero at 0.
            let tolerance = 4e-16 * abs(best.x) + 1e-300
            if a.value == 0 { return a.x }
            if width <= 2 * tolerance || b.value == 0 { return best.x }
            // Interpolates where the inverse quadratic through the three points is monotonic, else bisects.
            let ratio = (a.x - b.x) / (c.x - b.x)
            let fall = (a.value - b.value) / (c.value - b.value)
            if fall * fall < ratio, (1 - fall) * (1 - fall) < 1 - ratio {
                step =
                    a.value / (b.value - a.value) * c.value / (b.value - c.value)
                    + (c.x - a.x) / (b.x - a.x) * a.value / (c.value - a.value) * b.value / (c.value - b.value)
            } else {
                step = 0.5
            }
            // Each step moves by at least the tolerance, so that the interval always shrinks.
            let least = tolerance / width
            step = min(max(step, least), 1 - least)
        }
        return a.x
    }
}
