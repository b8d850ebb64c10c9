import Glibc

/// The gamma function and its relatives, for arguments greater than 0.
enum Gamma {
    /// Returns ln Γ(x).
    static func logarithm(_ x: Double) -> Double {
        var sign: Int32 = 0
        return lgamma_r(x, &sign)
    }

    /// Returns the remainder of Stirling's formula: ln Γ(x) - ((x - ½) ln x - x + ½ ln 2π).
    ///
    /// Abramowitz and Stegun 6.1.41; accurate to the last digit for x of at least 10.
    static func stirlingRemainder(_ x: Double) -> Double {
        let square = 1 / (x * x)
        return (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square * (1.0 / 1680 - square / 1188)))) / x
    }
}

/// The beta distribution on 0...1.
public struct Beta: Sendable, Equatable {
    /// The first shape parameter, greater than 0.
    public let a: Double
    /// The second shape parameter, greater than 0.
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

    /// Returns the cumulative probability P(X ≤ x).
    public func probability(upTo x: Double) -> Double {
        Self.regularised(a, b, x, 1 - x)
    }

    /// Returns the regularised incomplete beta function I_x(a, b), by its continued fraction (NIST Digital Library of
    /// Mathematical Functions 8.17.22).
    ///
    /// - Parameter y: 1 - x, passed separately because the caller may know it more precisely.
    static func regularised(_ a: Double, _ b: Double, _ x: Double, _ y: Double) -> Double {
        guard x > 0 else { return 0 }
        guard y > 0 else { return 1 }
        // The fraction converges fast only below the mean.
        guard x <= (a + 1) / (a + b + 2) else { return 1 - regularised(b, a, y, x) }
        var fraction = ContinuedFraction(1)
        // Guarantees an end. The fraction usually converges after far fewer terms.
        let maximumTerms = 1_000_000.0
        var m = 0.0
        while true {
            // The coefficients alternate between two formulas.
            let odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
            guard fraction.add(numerator: odd, denominator: 1) else { break }
            m += 1
            let even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
            guard fraction.add(numerator: even, denominator: 1), m < maximumTerms else { break }
        }
        return min(1, power(a, b, x, y) / a / fraction.value)
    }

    /// Returns x^a y^b / B(a, b). For large a and b it is computed from the distance to the mean, because the factors
    /// nearly cancel.
    private static func power(_ a: Double, _ b: Double, _ x: Double, _ y: Double) -> Double {
        guard min(a, b) >= 10 else {
            // Takes the logarithm of the lesser one of x and y = 1 - x, which is known more precisely.
            let logX = x < y ? log(x) : log1p(-y)
            let logY = x < y ? log1p(-x) : log(y)
            return exp(a * logX + b * logY - logFunction(a, b))
        }
        let sum = a + b
        let deviation = x < y ? x - a / sum : b / sum - y
        let exponent = a * log1p(deviation * sum / a) + b * log1p(-deviation * sum / b)
        let remainder = Gamma.stirlingRemainder(a) + Gamma.stirlingRemainder(b) - Gamma.stirlingRemainder(sum)
        return exp(exponent - remainder) * (a / sum * b / (2 * .pi)).squareRoot()
    }

    /// Returns ln B(a, b) without the cancellation that subtracting ln Γ of large numbers would cause.
    static func logFunction(_ a: Double, _ b: Double) -> Double {
        let small = min(a, b)
        let large = max(a, b)
        guard large >= 10 else { return Gamma.logarithm(a) + Gamma.logarithm(b) - Gamma.logarithm(a + b) }
        // ln Γ(large) - ln Γ(large + small)
        let ratio =
            -(large - 0.5) * log1p(small / large) - small * log(large + small) + small
            + Gamma.stirlingRemainder(large) - Gamma.stirlingRemainder(large + small)
        return Gamma.logarithm(small) + ratio
    }
}

/// Evaluates a continued fraction b0 + a1 / (b1 + a2 / (b2 + …)) term by term: Lentz's method with the modification of
/// Thompson and Barnett (Coulomb and Bessel functions of complex arguments and order, 1986).
struct ContinuedFraction {
    private(set) var value: Double
    private var c: Double
    private var d = 0.0

    init(_ first: Double) {
        value = Self.nonZero(first)
        c = value
    }

    /// Adds a term.
    ///
    /// - Returns: `false` once a term no longer changes the value: the fraction has converged.
    mutating func add(numerator: Double, denominator: Double) -> Bool {
        d = 1 / Self.nonZero(denominator + numerator * d)
        c = Self.nonZero(denominator + numerator / c)
        let factor = c * d
        value *= factor
        return abs(factor - 1) > 1e-16
    }

    /// Replaces 0, by which the method could have to divide, by a tiny number.
    private static func nonZero(_ x: Double) -> Double {
        abs(x) < 1e-300 ? 1e-300 : x
    }
}
