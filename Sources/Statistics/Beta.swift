import Glibc

/// The beta distribution on 0...1.
public struct Beta: Sendable, Equatable {
    /// Greater than 0, both.
    public let a: Double
    public let b: Double

    public init(_ a: Double, _ b: Double) {
        self.a = a
        self.b = b
    }

    public var mean: Double { a / (a + b) }

    public var standardDeviation: Double {
        (mean * (b / (a + b)) / (a + b + 1)).squareRoot()
    }

    public func density(_ x: Double) -> Double {
        guard x > 0, x < 1 else { return 0 }
        return Self.power(a, b, x, 1 - x) / (x * (1 - x))
    }

    /// The probability of a value of at the most `x`.
    public func probability(upTo x: Double) -> Double {
        Self.regularised(a, b, x, 1 - x)
    }

    /// The regularised incomplete beta function I_x(a, b), by its continued fraction (NIST Digital Library of
    /// Mathematical Functions 8.17.22).
    ///
    /// - Parameter y: 1 - x, given for itself because it may be exact where x is not.
    static func regularised(_ a: Double, _ b: Double, _ x: Double, _ y: Double) -> Double {
        guard x > 0 else { return 0 }
        guard y > 0 else { return 1 }
        // The fraction converges fast on this side of the mean.
        guard x <= (a + 1) / (a + b + 2) else { return 1 - regularised(b, a, y, x) }
        var fraction = ContinuedFraction(1)
        var m = 0.0
        while true {
            let odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
            guard fraction.add(numerator: odd, denominator: 1) else { break }
            m += 1
            let even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
            guard fraction.add(numerator: even, denominator: 1), m < 1_000_000 else { break }
        }
        return min(1, power(a, b, x, y) / a / fraction.value)
    }

    /// x^a y^b / B(a, b). For great a and b as a deviation from the mode, because the factors nearly cancel.
    private static func power(_ a: Double, _ b: Double, _ x: Double, _ y: Double) -> Double {
        guard min(a, b) >= 10 else {
            let (logX, logY) = (x < y ? log(x) : log1p(-y), x < y ? log1p(-x) : log(y))
            return exp(a * logX + b * logY - logFunction(a, b))
        }
        let sum = a + b
        let deviation = x < y ? x - a / sum : b / sum - y
        let exponent = a * log1p(deviation * sum / a) + b * log1p(-deviation * sum / b)
        let rest = Gamma.stirlingRest(a) + Gamma.stirlingRest(b) - Gamma.stirlingRest(sum)
        return exp(exponent - rest) * (a / sum * b / (2 * .pi)).squareRoot()
    }

    /// ln B(a, b), without the loss of places that three logarithms of great factorials bring.
    static func logFunction(_ a: Double, _ b: Double) -> Double {
        let (small, large) = (min(a, b), max(a, b))
        guard large >= 10 else { return Gamma.logarithm(a) + Gamma.logarithm(b) - Gamma.logarithm(a + b) }
        // ln Γ(large) - ln Γ(large + small)
        let ratio =
            -(large - 0.5) * log1p(small / large) - small * log(large + small) + small
            + Gamma.stirlingRest(large) - Gamma.stirlingRest(large + small)
        return Gamma.logarithm(small) + ratio
    }
}
