/// A sum of many numbers, kept as a number and what does not fit into it: about 106 bits, so that what is added and
/// later taken away again leaves nothing behind, and variances can be had from sums of squares.
///
/// Knuth, The Art of Computer Programming, volume 2, 4.2.2 (the exact error of a sum); Dekker, A floating-point
/// technique for extending the available precision, 1971.
public struct CompensatedSum: Sendable, Equatable {
    /// The sum as near as one number comes.
    public private(set) var value: Double
    /// What is left; at the most half of the last place of ``value``.
    public private(set) var rest: Double

    public static let zero = CompensatedSum(0)

    public init(_ value: Double, rest: Double = 0) {
        self.value = value
        self.rest = rest
    }

    /// The exact product of two numbers.
    public init(product left: Double, _ right: Double) {
        value = left * right
        rest = (-value).addingProduct(left, right)
    }

    private init(exactly left: Double, plus right: Double) {
        value = left + right
        let rounded = value - left
        rest = (left - (value - rounded)) + (right - rounded)
    }

    public static func + (left: Self, right: Self) -> Self {
        let high = Self(exactly: left.value, plus: right.value)
        let low = Self(exactly: left.rest, plus: right.rest)
        let sum = Self(exactly: high.value, plus: high.rest + low.value)
        return Self(exactly: sum.value, plus: sum.rest + low.rest)
    }

    public static prefix func - (sum: Self) -> Self {
        Self(-sum.value, rest: -sum.rest)
    }

    public static func - (left: Self, right: Self) -> Self {
        left + -right
    }

    public static func * (left: Self, right: Self) -> Self {
        let product = Self(product: left.value, right.value)
        return Self(exactly: product.value, plus: product.rest + (left.value * right.rest + left.rest * right.value))
    }

    public static func / (left: Self, right: Double) -> Self {
        let quotient = left.value / right
        let remainder = left - Self(product: quotient, right)
        return Self(exactly: quotient, plus: remainder.value / right)
    }
}
