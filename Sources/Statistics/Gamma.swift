import Glibc

/// Functions of the gamma family, for arguments greater than 0.
enum Gamma {
    /// ln Γ(x).
    static func logarithm(_ x: Double) -> Double {
        var sign: Int32 = 0
        return lgamma_r(x, &sign)
    }

    /// What Stirling's formula leaves of ln Γ(x): ln Γ(x) - ((x - ½) ln x - x + ½ ln 2π).
    ///
    /// Abramowitz and Stegun 6.1.41; for x of at least 10 exact to the last place.
    static func stirlingRest(_ x: Double) -> Double {
        let square = 1 / (x * x)
        return (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square * (1.0 / 1680 - square / 1188)))) / x
    }

    /// The upper regularised incomplete gamma function Q(a, x), by its series or its continued fraction (Abramowitz
    /// and Stegun 6.5.29 and 6.5.31; evaluated as Lentz does).
    static func upperRegularised(_ a: Double, _ x: Double) -> Double {
        guard x > 0 else { return 1 }
        let factor = exp(a * log(x) - x - logarithm(a))
        if x < a + 1 {
            var term = 1 / a
            var sum = term
            var n = a
            while term > sum * 1e-17 {
                n += 1
                term *= x / n
                sum += term
            }
            return 1 - factor * sum
        }
        var fraction = ContinuedFraction(x + 1 - a)
        var n = 1.0
        while fraction.add(numerator: -n * (n - a), denominator: x + 1 - a + 2 * n), n < 100_000 { n += 1 }
        return factor / fraction.value
    }
}

/// A continued fraction as its terms come in, by the method of Lentz as Thompson and Barnett changed it (Coulomb and
/// Bessel functions of complex arguments and order, 1986).
struct ContinuedFraction {
    private(set) var value: Double
    private var c: Double
    private var d = 0.0

    init(_ first: Double) {
        value = Self.nonZero(first)
        c = value
    }

    /// - Returns: whether the term still made a difference.
    mutating func add(numerator: Double, denominator: Double) -> Bool {
        d = 1 / Self.nonZero(denominator + numerator * d)
        c = Self.nonZero(denominator + numerator / c)
        let factor = c * d
        value *= factor
        return abs(factor - 1) > 1e-16
    }

    private static func nonZero(_ x: Double) -> Double {
        abs(x) < 1e-300 ? 1e-300 : x
    }
}
